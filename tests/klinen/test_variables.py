"""Parameters and other variables; keys and integers as floats."""

import functools

import flax.linen as nn
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import FrozenDict, unfreeze
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kauldron import klinen as knn
from kauldron.klinen.variables import CodedTree
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

#
# Variables of a model
#


def test_with_params_takes_dicts_of_either_kind():
    model, other = auto_encoder(0), auto_encoder(1)
    for params in (other.params, unfreeze(other.params)):
        changed = model.with_params(params)
        assert_same(changed.params, other.params)
        assert_same(changed.eval()(X), other.eval()(X))
    assert differ(*(m.params["encoder"]["Dense_0"]["kernel"] for m in (model, other)))


def test_with_params_of_a_handle_replaces_its_part():
    model, other = auto_encoder(0).eval(), auto_encoder(1)
    encoder = model.encoder.with_params(other.encoder.params)
    assert isinstance(encoder, MLP)
    assert_same(encoder.params, other.encoder.params)
    assert_same(encoder(X), other.eval().encoder(X))
    assert_same(model.params, auto_encoder(0).params)


def test_with_params_keeps_keys_and_mode():
    model = auto_encoder().with_rng(3).eval()
    changed = model.with_params(model.params)
    assert not changed.training
    assert_same(changed.rngs, model.rngs)
    assert jax.tree.structure(changed) == jax.tree.structure(model)


def test_other_structures_are_listed():
    model = auto_encoder()
    params = unfreeze(model.params)
    params["encoder"]["Dense_7"] = params["encoder"].pop("Dense_0")
    with pytest.raises(ValueError) as caught:
        model.with_params(params)
    message = str(caught.value)
    assert "Missing: encoder/Dense_0/bias, encoder/Dense_0/kernel." in message
    assert "Unexpected: encoder/Dense_7/bias, encoder/Dense_7/kernel." in message
    with pytest.raises(ValueError, match="takes a dict"):
        model.with_params(jnp.ones(3))
    with pytest.raises(ValueError, match="Missing: encoder"):
        model.with_params({"decoder": model.decoder.params})


def test_with_variables_replaces_all_collections():
    model, other = Normed().init_bind(0, X), Normed().init_bind(1, X)
    _, other = other.call_and_update(X)
    changed = model.with_variables(other.variables)
    assert_same(changed.variables, other.variables)
    assert changed.collections["counts"]["calls"].dtype == jnp.int32
    with pytest.raises(ValueError, match="Missing: batch_stats/BatchNorm_0/mean"):
        model.with_variables({"params": model.params})

    outer = AutoEncoder(encoder=Normed(), decoder=MLP()).init_bind(0, X)
    part = outer.encoder.with_variables(other.variables)
    assert_same(part.variables, other.variables)


def test_params_inside_a_call():
    seen = []

    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            seen.append(self.params)
            y = Dense(8)(x)
            seen.append((self.params, self.collections, set(self.variables)))
            return y

    model = Net().init_bind(0, X)
    assert seen[0] == FrozenDict()
    model(X)
    params, collections, names = seen[-1]
    assert isinstance(params, FrozenDict)
    assert_same(params, model.params)
    assert (collections, names) == ({}, {"params"})


def test_partitioning_boxes_are_kept():
    init = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
    model = knn.Dense(8, kernel_init=init).init_bind(0, X)
    assert isinstance(model.params["kernel"], nn.Partitioned)
    assert model.params["kernel"].names == (None, "model")
    scaled = jax.tree.map(lambda leaf: leaf * 2, model)
    assert isinstance(scaled.params["kernel"], nn.Partitioned)
    assert_same(model.with_params(scaled.params)(X), scaled(X))
    with pytest.raises(ValueError, match=r"nn\.Partitioned"):
        model.with_params(nn.unbox(model.params))


def test_batch_statistics_in_both_modes():
    model = Normed().init_bind(0, X)
    assert set(model.collections) == {"batch_stats", "counts"}
    assert all(isinstance(tree, FrozenDict) for tree in model.collections.values())
    before = model.collections
    assert differ(model(X), model.eval()(X))
    assert_same(model.collections, before)

    y, updated = model.call_and_update(X)
    assert_same(y, model(X))
    assert_same(updated.params, model.params)
    stats = updated.collections["batch_stats"]["BatchNorm_0"]
    assert differ(stats["mean"], before["batch_stats"]["BatchNorm_0"]["mean"])
    assert updated.collections["counts"]["calls"] == 2
    assert differ(updated.eval()(X), model.eval()(X))
    assert_same(model.collections, before)


def test_updates_in_a_scan():
    model = Normed().init_bind(0, X)

    @jax.jit
    def run(model, xs):
        def body(model, x):
            _, model = model.call_and_update(x)
            return model, ()

        return jax.lax.scan(body, model, xs)[0]

    xs = jnp.stack([X, X + 1, X + 2])
    expected = model
    for x in xs:
        _, expected = expected.call_and_update(x)
    updated = run(model, xs)
    assert updated.collections["counts"]["calls"] == 4
    np.testing.assert_allclose(
        updated.collections["batch_stats"]["BatchNorm_0"]["mean"],
        expected.collections["batch_stats"]["BatchNorm_0"]["mean"],
        rtol=1e-5,
    )


def test_collections_made_by_a_call_are_kept_by_call_and_update():
    class Caching(knn.Module):
        @nn.compact
        def __call__(self, x, remember=False):
            if remember:
                self.variable("cache", "last", lambda: x).value = x
                self.sow("intermediates", "x", x)
            return x

    model = Caching().init_bind(0, X)
    assert model.collections == {}
    _, updated = model.call_and_update(X, remember=True)
    assert_same(updated.collections, {"cache": FrozenDict({"last": X})})


#
# Keys and integers as floats
#


def _round_trip(value, change=lambda code: code):
    coded = CodedTree({"leaf": value})
    codes = jax.tree.map(change, coded.codes())
    return codes["leaf"], CodedTree(codes=codes, forms=coded.forms).values()["leaf"]


@functools.partial(jax.jit, static_argnums=1)
def _round_trip_in(value, dtype):
    return _round_trip(value, lambda code: code.astype(dtype))


@hypothesis.given(
    hnp.arrays(
        st.sampled_from(
            ["int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"]
        ),
        st.sampled_from([(), (0,), (2, 1)]),  # another shape is another program
    ),
    st.sampled_from(["float32", "bfloat16", "float16"]),
)
@hypothesis.settings(max_examples=20)
def test_every_integer_survives_in_every_float_dtype(value, dtype):
    code, back = _round_trip_in(value, dtype)
    assert code.dtype == dtype
    assert not np.isnan(np.asarray(code, np.float32)).any()
    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys_keep_their_generator(impl):
    key = jax.random.key(3, impl=impl)
    code, back = _round_trip(key)
    assert code.dtype == jnp.float32
    assert jax.random.key_impl(back) == jax.random.key_impl(key)
    np.testing.assert_array_equal(jax.random.key_data(back), jax.random.key_data(key))


def test_floats_and_other_things_stay_as_they_are():
    tree = {"a": jnp.ones(2), "b": np.zeros(1, np.float64), "c": "text", "d": 1.5}
    coded = CodedTree(tree)
    assert coded.codes() is tree
    assert coded.values() is tree


def test_python_integers_become_arrays():
    _, back = _round_trip(7)
    assert back.dtype == jnp.int32 and back == 7
    _, back = _round_trip(True)
    assert back.dtype == jnp.bool_ and back


def test_noise_below_half_a_step_is_rounded_away():
    key = jax.random.PRNGKey(7)
    _, back = _round_trip(key, lambda code: code + 0.4)
    np.testing.assert_array_equal(back, key)


def test_specs_have_specs():
    coded = CodedTree({"n": jax.ShapeDtypeStruct((3,), jnp.int32)})
    assert coded.codes()["n"].shape == (3, 4)
    back = CodedTree(codes=coded.codes(), forms=coded.forms).values()
    assert back["n"].shape == (3,) and back["n"].dtype == jnp.int32


def test_what_is_no_longer_a_tree_of_that_form_is_explained():
    coded = CodedTree({"n": jnp.arange(2)})
    broken = CodedTree(codes={"n": None}, forms=coded.forms)
    with pytest.raises(ValueError, match="cannot be used as a model"):
        broken.values()
