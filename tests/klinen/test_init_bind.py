"""Keys and example inputs of `init_bind`."""

import dataclasses
import enum
import functools

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from flax.core import FrozenDict

from kauldron import kd
from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    Normed,
    X,
    assert_same,
    auto_encoder,
    differ,
)

SPEC = jax.ShapeDtypeStruct(X.shape, X.dtype)


@functools.cache
def params_of_flax():
    """What flax itself makes of the key 5."""
    raw = AutoEncoder(encoder=MLP(), decoder=MLP())
    return raw.init(jax.random.PRNGKey(5), X)["params"]


@pytest.mark.parametrize(
    "rng",
    [
        5,
        np.int64(5),
        jnp.int32(5),
        jax.random.PRNGKey(5),
        jax.random.key(5),
        np.asarray(jax.random.PRNGKey(5)),
        kd.random.PRNGKey(5),
        kd.random.PRNGKey(jax.random.key(5)),
        {"params": 5, "dropout": jax.random.key(1)},
        FrozenDict({"params": kd.random.PRNGKey(5), "dropout": 1}),
    ],
    ids=lambda rng: type(rng).__name__,
)
def test_equivalent_keys_give_the_parameters_of_flax(rng):
    raw = AutoEncoder(encoder=MLP(), decoder=MLP())
    assert_same(raw.init_bind(rng, X).params, FrozenDict(params_of_flax()))


@pytest.mark.parametrize(
    "rng",
    [
        1.5,
        "seed",
        None,
        True,
        np.zeros(3, np.uint32),
        np.zeros((2, 2), np.uint32),
        np.zeros(2, np.int32),
        jax.random.split(jax.random.key(0)),
        [0],
        {"params": "x"},
        {1: 0},
    ],
    ids=str,
)
def test_anything_else_is_a_type_error_that_lists_the_forms(rng):
    with pytest.raises(TypeError, match=r"integer seed.*jax\.random\.PRNGKey.*dict"):
        MLP().init_bind(rng, X)


def test_dict_without_params_names_the_stream_and_the_module():
    raw = AutoEncoder(encoder=MLP(), decoder=MLP())
    with pytest.raises(flax.errors.InvalidRngError, match=r"encoder/Dense_0.*'params'"):
        raw.init_bind({"dropout": 0}, X)


def test_dict_without_params_is_fine_for_a_model_without_parameters():
    model = knn.Dropout(0.5).init_bind({"dropout": 0}, X)
    assert model.params == FrozenDict()


def test_names_are_folded_in_as_kd_random_does():
    key = jax.random.PRNGKey(0)
    folded = MLP().init_bind(0, X).with_rng(key).rngs["dropout"]
    assert folded.tolist() == [1257701063, 4037336012]
    assert_same(folded, kd.random.fold_in_str(key, "dropout"))


def test_specs_give_the_same_parameters_as_arrays():
    assert_same(MLP().init_bind(0, SPEC).params, MLP().init_bind(0, X).params)


@dataclasses.dataclass
class TensorShape:
    """As TensorFlow has it."""

    sizes: list
    rank: int = 2

    def as_list(self):
        return self.sizes


@dataclasses.dataclass
class TensorSpec:
    shape: TensorShape
    dtype: object


@pytest.mark.parametrize(
    "spec",
    [
        kd.data.ArraySpec((4, 8), "float32"),
        kd.data.ArraySpec((4, 8), "float64"),
        kd.typing.ArraySpec(dtype=np.float32, shape=(4, 8)),
        jax.ShapeDtypeStruct((4, 8), np.float32),
        TensorSpec(TensorShape([4, 8]), np.float32),
        np.zeros((4, 8), np.float64),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_specs_of_all_kinds(spec):
    seen = []

    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            seen.append((x.shape, str(x.dtype)))
            return Dense(8)(x)

    Net().init_bind(0, spec)
    assert seen == [((4, 8), "float32")]


def test_specs_of_etils():
    array_types = pytest.importorskip("etils.array_types")
    model = knn.Dense(8).init_bind(0, array_types.f32[4, 8])
    assert model.params["kernel"].shape == (8, 8)
    with pytest.raises(ValueError, match=r"argument 0 is b 2"):
        knn.Dense(2).init_bind(0, array_types.f32["b 2"])


def test_unknown_sizes_name_the_argument():
    spec = kd.data.ArraySpec((None, 8), "float32")
    with pytest.raises(ValueError, match=r"argument 'x'"):
        MLP().init_bind(0, x=spec)
    with pytest.raises(ValueError, match=r"argument 0, at \['image'\]"):
        MLP().init_bind(0, {"image": spec})


class Color(enum.Enum):
    RED = 1


@struct.dataclass
class Batch:
    image: object
    label: object


def test_other_arguments_reach_the_model_untouched():
    seen = []

    class Net(knn.Module):
        @nn.compact
        def __call__(self, x, n, text, *, train, color, dtype, batch, fn, none):
            seen.append((n, text, train, color, dtype, batch, fn, none))
            return Dense(8)(x)

    batch = Batch(image=SPEC, label="cat")
    Net().init_bind(
        0,
        X,
        3,
        "text",
        train=True,
        color=Color.RED,
        dtype=np.float32,
        batch=batch,
        fn=len,
        none=None,
    )
    n, text, train, color, dtype, batch, fn, none = seen[0]
    assert (n, text, train, color, dtype) == (3, "text", True, Color.RED, np.float32)
    assert type(n) is int and fn is len and none is None
    assert batch.label == "cat"
    assert_same(batch.image, jnp.zeros(X.shape))


def test_dict_inputs_keep_their_order():
    class Net(knn.Module):
        @nn.compact
        def __call__(self, inputs):
            return [Dense(8)(value) for value in inputs.values()]

    inputs = {"z": SPEC, "a": jax.ShapeDtypeStruct((4, 3), jnp.float32)}
    params = jax.eval_shape(lambda: Net().init_bind(0, inputs)).params
    assert params["Dense_0"]["kernel"].shape == (8, 8)
    assert params["Dense_1"]["kernel"].shape == (3, 8)


def test_init_runs_in_training_mode_and_calls_start_without_keys():
    modes = []

    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            modes.append(self.training)
            return Dense(8)(x)

    model = Net().init_bind(0, X)
    assert modes == [True]
    assert model.training is True
    assert model.rngs == {}


def test_all_collections_but_intermediates_are_kept():
    class Net(Normed):
        @nn.compact
        def __call__(self, x):
            self.sow("intermediates", "x", x)
            return super().__call__(x)

    model = Net().init_bind(0, X)
    assert set(model.variables) == {"params", "batch_stats", "counts"}


def test_a_failed_init_leaves_no_trace():
    class Bad(knn.Module):
        encoder: nn.Module

        def __call__(self, x):
            self.encoder(x)
            raise RuntimeError("on purpose")

    raw = Bad(MLP())
    before = dict(vars(raw)), dict(vars(raw.encoder))
    with pytest.raises(RuntimeError, match="on purpose"):
        raw.init_bind(0, X)
    assert (dict(vars(raw)), dict(vars(raw.encoder))) == before
    assert raw.encoder.init_bind(0, X).eval()(X).shape == (4, 8)


def test_init_bind_of_a_bound_model_starts_over():
    model = auto_encoder().with_rng(0).eval()
    again = model.init_bind(1, X)
    assert again.training and again.rngs == {}
    assert differ(*(m.params["encoder"]["Dense_0"]["kernel"] for m in (model, again)))
    assert_same(again.params, auto_encoder(1).params)


def test_init_bind_of_a_handle_makes_a_new_root():
    encoder = auto_encoder().encoder.init_bind(1, X)
    assert_same(encoder.params, MLP().init_bind(1, X).params)
    assert jax.tree.structure(encoder) == jax.tree.structure(MLP().init_bind(1, X))


def test_method_initialises_through_another_method():
    class Net(knn.Module):
        def setup(self):
            self.a = Dense(8)
            self.b = Dense(8)

        def __call__(self, x):
            return self.a(x)

        def both(self, x):
            return self.a(x), self.b(x)

    for method in ("both", Net.both, Net().both, lambda net, x: (net.a(x), net.b(x))):
        assert set(Net().init_bind(0, X, method=method).params) == {"a", "b"}
    model = Net().init_bind(0, X)
    with pytest.raises(
        flax.errors.InvalidRngError, match=r"b.*init_bind\(\.\.\., meth"
    ):
        model.both(X)
    with pytest.raises(flax.errors.ScopeParamNotFoundError):
        model.with_rng({"params": 0}).both(X)
    with pytest.raises(TypeError, match="`method`"):
        Net().init_bind(0, X, method=3)


def test_streams_must_be_names():
    with pytest.raises(TypeError, match="tuple of names"):
        MLP().init_bind(0, X, streams="dropout")


def test_inside_jit_vmap_and_eval_shape():
    make = lambda key: MLP().init_bind(key, SPEC)  # noqa: E731
    key = jax.random.PRNGKey(0)
    assert_same(jax.jit(make)(key).params, make(key).params)

    keys = np.asarray(jax.random.split(key, 3))
    ensemble = jax.jit(jax.vmap(make))(keys)
    outputs = jax.jit(jax.vmap(lambda model: model.eval()(X)))(ensemble)
    expected = np.stack([make(k).eval()(X) for k in keys])
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)

    abstract = jax.eval_shape(make, key)
    leaves = jax.tree.leaves(abstract)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert jax.tree.structure(abstract) == jax.tree.structure(make(key))
