"""Random keys of bound models, and who gets which."""

import flax.errors
import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron import kd
from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    SetupNet,
    X,
    assert_close,
    assert_same,
    auto_encoder,
    differ,
)


class Noisy(knn.Module):
    """Draws from two streams, several times."""

    @nn.compact
    def __call__(self, x):
        noise = jax.random.normal(self.make_rng("noise"), x.shape)
        more = jax.random.normal(self.make_rng("noise"), x.shape)
        return nn.Dropout(0.5, deterministic=False)(x) + noise + 2 * more


class Stack(knn.Module):
    """Three levels of containers."""

    layers: list

    def __call__(self, x):
        for layer in self.layers:
            x = layer["block"][0](x)
        return x


def _stack(depth: int):
    block = MLP() if depth == 0 else _stack(depth - 1)
    return Stack(layers=[{"block": (block,)}])


def _parts_of_stack(model, x):
    for layer in model.layers:
        block = layer["block"][0]
        x = _parts_of_stack(block, x) if isinstance(block, Stack) else block(x)
    return x


def _parts_of_setup(model, x):
    y = model.scale * model.trunk(x)
    return model.heads[1](y) + model.factor * model.heads[0](y).sum()


CASES = {
    "fields": (
        AutoEncoder(encoder=MLP(), decoder=MLP()),
        lambda m, x: m.decoder(m.encoder(x)),
    ),
    "containers": (_stack(2), _parts_of_stack),
    "setup": (SetupNet(), _parts_of_setup),
    "setup below fields": (
        AutoEncoder(encoder=SetupNet(), decoder=MLP()),
        lambda m, x: m.decoder(_parts_of_setup(m.encoder, x)),
    ),
    "linen": (
        knn.Sequential([nn.Dropout(0.5, deterministic=False), Dense(8), MLP()]),
        lambda m, x: m.layers[2](m.layers[1](m.layers[0](x))),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_draw_the_numbers_that_the_whole_gives_them(case):
    raw, by_parts = CASES[case]
    model = raw.init_bind(0, X).with_rng(1)
    whole = model(X)
    assert_close(by_parts(model, X), whole)
    following = model.with_rng()
    following_whole = following(X)
    assert_close(by_parts(following, X), following_whole)
    assert differ(following_whole, whole)


@pytest.mark.parametrize("case", ["containers", "setup below fields"])
def test_parts_and_whole_agree_under_jit_and_with_typed_keys(case):
    raw, by_parts = CASES[case]
    model = raw.init_bind(0, X).with_rng(jax.random.key(1))
    eager = model(X)
    assert_close(by_parts(model, X), eager)
    whole, parts = jax.jit(lambda m, x: (m(x), by_parts(m, x)))(model, X)
    assert_close(whole, parts)
    np.testing.assert_allclose(whole, eager, rtol=1e-4, atol=1e-5)


def test_detached_handles_draw_the_same_numbers():
    model = knn.Sequential([knn.Dropout(0.5), knn.Dropout(0.5)]).init_bind(0, X)
    model = model.with_rng(jax.random.key(4))
    f = jax.jit(lambda part, x: part(x))
    first = f(model.layers[0], X)
    assert_same(f(model.layers[1], first), f(model, X))
    assert differ(f(model, X), 2 * first)


def test_numbers_are_those_of_flax():
    key = jax.random.PRNGKey(5)
    raw = AutoEncoder(encoder=MLP(), decoder=MLP())
    model = raw.init_bind(0, X).with_rng({"dropout": key})
    expected = raw.apply(raw.init(jax.random.PRNGKey(0), X), X, rngs={"dropout": key})
    assert_close(model(X), expected)


def test_other_streams_are_declared_or_given_by_name():
    key = jax.random.PRNGKey(0)
    declared = Noisy().init_bind(0, X, streams=("dropout", "noise"))
    assert sorted(declared.with_rng(key).rngs) == ["dropout", "noise"]
    by_name = {
        "noise": kd.random.fold_in_str(key, "noise"),
        "dropout": kd.random.PRNGKey(key).fold_in("dropout"),
    }
    plain = Noisy().init_bind(0, X)
    assert_same(plain.with_rng(by_name)(X), declared.with_rng(key)(X))
    with pytest.raises(flax.errors.InvalidRngError) as caught:
        plain.with_rng(key)(X)
    message = str(caught.value)
    assert "Noisy at the root of the model" in message
    assert "with_rng({'noise': key})" in message
    assert "streams=('noise', ...)" in message


def test_streams_that_are_not_named_are_absent():
    model = Noisy().init_bind(0, X, streams=("dropout", "noise"))
    assert list(model.with_rng({"noise": 1}).rngs) == ["noise"]
    with pytest.raises(flax.errors.InvalidRngError, match=r"Dropout_0.*'dropout'"):
        model.with_rng({"noise": 1})(X)


def test_rngs_are_plain_jax_keys():
    model = auto_encoder()
    assert model.rngs == {}
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        wrapped = model.with_rng({"dropout": kd.random.PRNGKey(key)})
        assert type(wrapped.rngs) is dict
        assert isinstance(wrapped.rngs["dropout"], jax.Array)
        assert wrapped.rngs["dropout"].dtype == key.dtype
        assert_same(
            jax.random.key_data(wrapped.rngs["dropout"]), jax.random.key_data(key)
        )
    assert_same(model.with_rng(0).encoder.rngs, model.with_rng(0).rngs)
    assert_same(model.with_rng(0).eval().train().rngs, model.with_rng(0).rngs)


def test_with_rng_forms_agree():
    model = auto_encoder()
    expected = model.with_rng(jax.random.PRNGKey(3)).rngs
    for rng in (3, np.int32(3), kd.random.PRNGKey(3), np.array([0, 3], np.uint32)):
        assert_same(model.with_rng(rng).rngs, expected)
    split = {name: jax.random.split(key, 1)[0] for name, key in expected.items()}
    assert_same(model.with_rng(3).with_rng().rngs, split)


@pytest.mark.parametrize("rng", [1.5, "x", True, np.zeros(2), {"dropout": None}])
def test_wrong_keys_are_type_errors(rng):
    with pytest.raises(TypeError, match="`with_rng` takes"):
        auto_encoder().with_rng(rng)


def test_keys_may_be_traced():
    model = auto_encoder()
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), 3))
    outputs = jax.jit(jax.vmap(lambda key: model.with_rng(key)(X)))(keys)
    expected = np.stack([model.with_rng(key)(X) for key in keys])
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)

    @jax.jit
    def next_rng(model, seed):
        return model.with_rng(seed).with_rng()

    assert_same(next_rng(model, 3).rngs, model.with_rng(3).with_rng().rngs)


def test_a_failed_with_rng_on_a_handle_says_the_same():
    with pytest.raises(ValueError, match=r"`model\.with_rng\(key\)` first"):
        auto_encoder().encoder.with_rng()
