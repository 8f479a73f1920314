"""The object-style key: construction, methods, batches, protocols."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron.random import PRNGKey
from tests import processes

RAW = jax.random.PRNGKey(0)
TYPED = jax.random.key(0)


def _same(key, plain):
    assert isinstance(key, PRNGKey)
    np.testing.assert_array_equal(np.asarray(key), _data(plain))


def _data(plain):
    typed = jnp.issubdtype(plain.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(plain) if typed else plain)


# --------------------------------------------------------------------------------------
# Construction
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [3, np.int64(3), np.uint8(3), np.array(3), jnp.int32(3), jnp.uint32(3)]
)
def test_any_integer_is_a_seed(seed):
    _same(PRNGKey(seed), jax.random.PRNGKey(3))


def test_seed_defaults_to_zero():
    _same(PRNGKey(), RAW)


def test_traced_seed():
    _same(jax.jit(PRNGKey)(7), jax.random.PRNGKey(7))


def test_impl_chooses_the_generator():
    _same(PRNGKey(1, impl="rbg"), jax.random.PRNGKey(1, impl="rbg"))


@pytest.mark.parametrize(
    "key", [RAW, TYPED, jax.random.split(RAW, 3), jax.random.split(TYPED, 3)]
)
def test_existing_key_is_wrapped_as_it_is(key):
    assert PRNGKey(key).rng is key


def test_numpy_raw_key_is_wrapped():
    raw = np.array([1, 2], np.uint32)
    assert PRNGKey(raw).rng is raw
    np.testing.assert_array_equal(PRNGKey(raw).normal(), jax.random.normal(raw))


def test_wrapper_of_a_wrapper_is_the_same_key():
    key = PRNGKey(5)
    assert PRNGKey(key).rng is key.rng


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        None,
        True,
        [0, 0],
        np.float32(1),
        np.array([1, 2]),
        jnp.zeros((), bool),
        np.zeros(3, np.uint32),
        object(),
    ],
)
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="integer seed"):
        PRNGKey(value)


def test_string_is_refused_with_the_right_spelling():
    with pytest.raises(TypeError, match=r"PRNGKey\(0\)\.fold_in\('abc'\)"):
        PRNGKey("abc")


def test_impl_with_an_existing_key_is_refused():
    with pytest.raises(TypeError, match="impl="):
        PRNGKey(RAW, impl="rbg")


# --------------------------------------------------------------------------------------
# Methods
# --------------------------------------------------------------------------------------


def test_split_unpacks_into_keys():
    a, b = PRNGKey(0).split()
    _same(a, jax.random.split(RAW)[0])
    _same(b, jax.random.split(RAW)[1])


def test_split_into_a_shape():
    keys = PRNGKey(0).split((2, 3))
    assert len(keys) == 2
    assert len(keys[0]) == 3
    _same(keys[1, 2], jax.random.split(RAW, (2, 3))[1, 2])


def test_next_is_the_first_of_a_split():
    _same(PRNGKey(0).next(), jax.random.split(RAW, 1)[0])


def test_fold_in_int_and_traced_int():
    _same(PRNGKey(0).fold_in(3), jax.random.fold_in(RAW, 3))
    traced = jax.jit(lambda i: PRNGKey(0).fold_in(i))(3)
    _same(traced, jax.random.fold_in(RAW, 3))


def test_draws_equal_those_of_jax():
    key = PRNGKey(0)
    np.testing.assert_array_equal(key.uniform((2,)), jax.random.uniform(RAW, (2,)))
    np.testing.assert_array_equal(key.normal(), jax.random.normal(RAW))
    x = jnp.arange(5)
    np.testing.assert_array_equal(key.permutation(x), jax.random.permutation(RAW, x))
    np.testing.assert_array_equal(key.choice(x), jax.random.choice(RAW, x))
    assert not isinstance(key.uniform(), PRNGKey)


def test_every_function_that_takes_a_key_is_a_method():
    for name in ("bernoulli", "truncated_normal", "randint", "bits", "gumbel", "clone"):
        assert callable(getattr(PRNGKey, name))
    assert isinstance(PRNGKey(TYPED).clone(), PRNGKey)


@pytest.mark.parametrize("name", ["key", "PRNGKey", "wrap_key_data"])
def test_functions_that_make_keys_are_not_methods(name):
    assert not hasattr(PRNGKey(0), name)


def test_unknown_attribute_names_what_exists():
    message = r"'unifrom'.*jax\.random.* 'uniform'\?"
    with pytest.raises(AttributeError, match=message) as info:
        PRNGKey(0).unifrom
    assert info.value.obj is None  # or Python would add its own suggestion


def test_typed_keys_stay_typed():
    key = PRNGKey(TYPED)
    assert jnp.issubdtype(key.split()[0].dtype, jax.dtypes.prng_key)
    _same(key.fold_in("x"), jax.random.fold_in(TYPED, _string_hash("x")))


def _string_hash(text):
    from kauldron.random.prng_key import hash_to_uint32

    return hash_to_uint32(text)


# --------------------------------------------------------------------------------------
# Batches
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [RAW, TYPED], ids=["raw", "typed"])
def test_batches_have_length_index_and_slices(base):
    keys, plain = PRNGKey(base).split(4), jax.random.split(base, 4)
    assert len(keys) == 4
    _same(keys[1], plain[1])
    _same(keys[-1], plain[-1])
    _same(keys[np.int32(2)], plain[2])
    _same(keys[1:3], plain[1:3])
    assert [np.asarray(k).tolist() for k in keys] == _data(plain).tolist()


def test_index_out_of_range():
    with pytest.raises(IndexError, match="There is no key 2 in a batch of 2 keys"):
        PRNGKey(0).split()[2]


def test_index_into_the_words_of_a_raw_key_is_refused():
    with pytest.raises(IndexError):
        PRNGKey(0).split()[0, 0]


@pytest.mark.parametrize("index", ["a", None, ..., 1.0, jnp.array(0.5)])
def test_other_indices_are_refused(index):
    with pytest.raises(TypeError):
        PRNGKey(0).split()[index]


def test_traced_index():
    keys = PRNGKey(0).split(3)
    _same(jax.jit(lambda ks, i: ks[i])(keys, 1), jax.random.split(RAW, 3)[1])


@pytest.mark.parametrize("base", [RAW, TYPED], ids=["raw", "typed"])
@pytest.mark.parametrize("use", [iter, len, lambda key: key[0]])
def test_single_key_is_not_a_sequence(base, use):
    with pytest.raises(TypeError, match="single key"):
        use(PRNGKey(base))


def test_keys_are_truthy():
    assert PRNGKey(0)
    assert PRNGKey(0).split(1)[:0]


# --------------------------------------------------------------------------------------
# As an array, as a value
# --------------------------------------------------------------------------------------


def test_array_attributes_come_from_the_key():
    assert PRNGKey(0).shape == (2,)
    assert PRNGKey(0).ndim == 1
    assert PRNGKey(0).dtype == jnp.uint32
    assert PRNGKey(TYPED).shape == ()
    assert PRNGKey(0).sharding == RAW.sharding


def test_numpy_conversion_honours_dtype_and_copy():
    assert np.asarray(PRNGKey(TYPED), dtype=np.int64).dtype == np.int64
    copied = np.array(PRNGKey(1), copy=True)
    copied[0] = 9
    assert copied.tolist() == [9, 1]


def test_repr():
    assert repr(PRNGKey(0)) == f"PRNGKey({RAW!r})"


def test_equality_and_hash_are_by_identity():
    key = PRNGKey(0)
    assert key == key
    assert key != PRNGKey(0)
    assert len({key, PRNGKey(0)}) == 2


def test_immutable():
    key = PRNGKey(0)
    for change in (lambda: setattr(key, "rng", RAW), lambda: setattr(key, "x", 1)):
        with pytest.raises(AttributeError, match="immutable"):
            change()
    with pytest.raises(AttributeError, match="immutable"):
        del key.rng


@pytest.mark.parametrize("base", [RAW, TYPED, jax.random.split(TYPED, 2)])
@pytest.mark.parametrize(
    "duplicate",
    [lambda k: pickle.loads(pickle.dumps(k)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_copies_keep_type_and_value(base, duplicate):
    copied = duplicate(PRNGKey(base))
    _same(copied, base)
    assert copied.dtype == base.dtype


# --------------------------------------------------------------------------------------
# JAX transformations
# --------------------------------------------------------------------------------------


def test_jit_argument_and_result():
    out = jax.jit(lambda key: key.split()[1])(PRNGKey(0))
    _same(out, jax.random.split(RAW)[1])


def test_vmap_over_a_batch():
    drawn = jax.vmap(lambda key: key.normal((3,)))(PRNGKey(0).split(4))
    expected = jax.vmap(lambda k: jax.random.normal(k, (3,)))(jax.random.split(RAW, 4))
    np.testing.assert_array_equal(drawn, expected)


def test_scan_carry():
    def body(key, _):
        key, use = key.split()
        return key, use.uniform()

    last, drawn = jax.lax.scan(body, PRNGKey(0), length=3)
    plain, expected = RAW, []
    for _ in range(3):
        plain, use = jax.random.split(plain)
        expected.append(jax.random.uniform(use))
    _same(last, plain)
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize(
    "leaf",
    [None, object(), "text", np.zeros(2), jax.ShapeDtypeStruct((2,), jnp.uint32)],
)
def test_unflatten_never_looks_at_the_leaf(leaf):
    structure = jax.tree.structure(PRNGKey(0))
    rebuilt = jax.tree.unflatten(structure, [leaf])
    assert isinstance(rebuilt, PRNGKey)
    assert rebuilt.rng is leaf


def test_tree_path_names_the_array():
    ((path, leaf),) = jax.tree_util.tree_leaves_with_path({"k": PRNGKey(0)})
    assert jax.tree_util.keystr(path) == "['k'].rng"
    assert leaf.shape == (2,)


def test_eval_shape_and_device_put():
    spec = jax.eval_shape(lambda: PRNGKey(0))
    assert isinstance(spec, PRNGKey)
    assert spec.shape == (2,)
    placed = jax.device_put(PRNGKey(0), jax.devices()[0])
    _same(placed, RAW)


def test_importing_needs_only_jax():
    script = (
        "import sys; from kauldron import random; random.PRNGKey(0).split();"
        "bad = {'flax', 'optax', 'orbax', 'tensorflow', 'ml_collections'};"
        "sys.exit(str(bad & set(sys.modules)) if bad & set(sys.modules) else 0)"
    )
    processes.run_script_with_jax(script)
