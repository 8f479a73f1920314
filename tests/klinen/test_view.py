"""Sub-modules of bound models."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax.core import FrozenDict

from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    Normed,
    SetupNet,
    X,
    assert_same,
    auto_encoder,
)


class Nest(knn.Module):
    """Modules in a list, in a dict, and linen ones among them."""

    childs: list
    d: dict

    def __call__(self, x):
        for child in self.childs:
            x = child(x)
        return self.d["k"](x)


class Reader(knn.Module):
    """A `setup()` that needs more than its own parameters."""

    def setup(self):
        self.embed = Dense(8)
        self.table = self.embed(jnp.ones((2, 8)))
        self.head = Dense(8)
        self.running = self.variable("state", "running", lambda: jnp.zeros(()))

    def __call__(self, x):
        self.running.value += 1.0
        return self.head(x) + self.table.sum()


class Own(knn.Module):
    """Own parameters, and an inner module that is made with one of its own fields."""

    given: nn.Module

    def setup(self):
        self.bias = self.param("bias", nn.initializers.ones, (8,))
        self.inner = AutoEncoder(encoder=self.given, decoder=Dense(8))

    def __call__(self, x):
        return self.inner(x) + self.bias


@pytest.fixture(scope="module")
def nest():
    deep = AutoEncoder(encoder=MLP(), decoder=Dense(8))
    return Nest(childs=[Dense(8), deep], d={"k": MLP()}).init_bind(0, X).with_rng(1)


def test_handles_are_modules_of_their_class(nest):
    assert isinstance(nest.childs[0], nn.Dense)
    assert isinstance(nest.childs[0], knn.Module)
    assert isinstance(nest.childs[1], AutoEncoder)
    assert isinstance(nest.childs[1].encoder, MLP)
    assert nest.childs[1].encoder.features == 8
    assert nest.childs[0].features == 8


def test_handles_have_params_mode_and_keys(nest):
    dense = nest.childs[0]
    assert_same(dense.params, nest.params["childs_0"])
    assert dense.training is True and dense.eval().training is False
    assert_same(dense.rngs, nest.rngs)
    kernel, bias = dense.params["kernel"], dense.params["bias"]
    assert jnp.allclose(dense(X), X @ kernel + bias, atol=1e-6)
    deep = nest.childs[1]
    assert_same(deep.params, FrozenDict(nest.params["childs_1"]))
    assert deep.params == FrozenDict(
        {"encoder": deep.encoder.params, "decoder": deep.decoder.params}
    )
    assert nest.d["k"].params.keys() == {"Dense_0", "Dense_1"}


def test_a_module_without_parameters_has_empty_params():
    model = AutoEncoder(encoder=knn.Dropout(0.5), decoder=MLP()).init_bind(0, X)
    assert model.encoder.params == FrozenDict()
    assert model.encoder.collections == {}


def test_handles_are_views_that_never_change(nest):
    handle = nest.childs[1]
    evaluated = handle.eval()
    assert handle.training and nest.training
    assert not evaluated.training and not evaluated.encoder.training
    assert_same(evaluated(X), nest.eval().childs[1](X))
    assert nest.eval().childs[1].unbind()[0] == handle


def test_with_rng_of_a_handle_is_that_of_the_model(nest):
    key = jax.random.key(8)
    handle = nest.childs[1]
    assert_same(handle.with_rng(key)(X), nest.with_rng(key).childs[1](X))
    assert_same(handle.with_rng()(X), nest.with_rng().childs[1](X))
    assert_same(
        handle.with_rng().with_rng()(X), nest.with_rng().with_rng().childs[1](X)
    )


def test_the_same_handle_is_the_same_object(nest):
    assert nest.childs[1] is nest.childs[1]
    assert nest.childs[1].encoder is nest.childs[1].encoder


def test_setup_modules_are_handles():
    model = SetupNet().init_bind(0, X).with_rng(0)
    assert isinstance(model.trunk, MLP)
    assert_same(model.trunk.params, model.params["trunk"])
    assert_same(model.heads[0].params, model.params["heads_0"])
    y = model.scale * model.trunk(X)
    y = model.heads[1](y) + model.factor * model.heads[0](y).sum()
    assert_same(y, model(X))
    assert model.trunk is model.trunk
    assert model.eval().trunk.training is False
    assert model.factor == 2.0
    assert_same(model.scale, model.params["scale"])


def test_fields_that_setup_fills():
    class Typed(knn.Module):
        inner: nn.Module | None = dataclasses.field(init=False, default=None)
        size: int = dataclasses.field(init=False, default=0)

        def setup(self):
            self.inner = Dense(8)
            self.size = 3

        def __call__(self, x):
            return self.inner(x) * self.size

    model = Typed().init_bind(0, X)
    assert model.size == 3
    assert_same(model.inner(X) * 3, model(X))


def test_setup_modules_of_setup_modules():
    class Outer(knn.Module):
        def setup(self):
            self.net = SetupNet()
            self.pair = AutoEncoder(encoder=SetupNet(), decoder=MLP())

        def __call__(self, x):
            return self.pair(self.net(x))

    model = Outer().init_bind(0, X).with_rng(2)
    assert_same(model(X), model.pair(model.net(X)))
    encoder = model.pair.encoder
    assert_same(encoder.trunk.params, model.params["pair"]["encoder"]["trunk"])
    assert_same(encoder.eval().trunk(X), model.eval().pair.encoder.trunk(X))
    f = jax.jit(lambda m, x: m(x))
    assert_same(f(encoder.trunk, X), jax.jit(lambda x: encoder.trunk(x))(X))
    paths = [p for p, _ in jax.tree_util.tree_flatten_with_path(encoder.trunk)[0]]
    names = {jax.tree_util.keystr(path).split("]['Dense")[0] for path in paths}
    assert names == {
        ".params['pair']['encoder']['scale']",
        ".params['pair']['encoder']['trunk'",
        ".rngs['default']",
        ".rngs['dropout']",
    }


def test_variables_of_setup_are_explained():
    model = Reader().init_bind(0, X)
    with pytest.raises(AttributeError, match=r"model\.collections\['state'\]"):
        model.running


def test_a_handle_carries_what_the_setup_above_it_needs():
    model = Reader().init_bind(0, X)
    f = jax.jit(lambda m, x: m(x))
    assert_same(f(model.head, X), jax.jit(lambda x: model.head(x))(X))

    model = AutoEncoder(encoder=Own(given=Dense(8)), decoder=MLP()).init_bind(0, X)
    inner = model.encoder.inner
    assert_same(f(inner, X), jax.jit(lambda x: inner(x))(X))
    paths = [p for p, _ in jax.tree_util.tree_flatten_with_path(inner)[0]]
    names = {tuple(str(key.key) for key in path[1:4]) for path in paths}
    assert names == {
        ("encoder", "bias"),
        ("encoder", "given", "kernel"),
        ("encoder", "given", "bias"),
        ("encoder", "inner", "decoder"),
    }
    assert inner.encoder is model.encoder.given


def test_leaves_of_a_handle_are_its_own():
    model = auto_encoder()
    leaves = jax.tree.leaves(model.encoder)
    assert_same(leaves, jax.tree.leaves(model.params["encoder"]))
    assert len(jax.tree.leaves(model.with_rng(0).encoder)) == len(leaves) + 2


def test_collections_of_handles():
    model = AutoEncoder(encoder=Normed(), decoder=MLP()).init_bind(0, X)
    stats = model.encoder.collections["batch_stats"]
    assert_same(stats, model.collections["batch_stats"]["encoder"])
    _, updated = model.encoder.call_and_update(X)
    assert updated.collections["counts"]["calls"] == 2
    assert model.encoder.collections["counts"]["calls"] == 1
    round_trip = jax.tree.map(lambda leaf: leaf, updated)
    assert round_trip.collections["counts"]["calls"] == 2
    assert_same(round_trip(X), updated(X))
    names = {
        jax.tree_util.keystr(p)
        for p, _ in jax.tree_util.tree_flatten_with_path(model.decoder)[0]
    }
    assert not any("collections" in name for name in names)


def test_detached_handles_keep_working():
    model = auto_encoder().with_rng(3)
    for part in (
        model.encoder,
        AutoEncoder(encoder=SetupNet(), decoder=MLP())
        .init_bind(0, X)
        .with_rng(1)
        .encoder,
    ):
        detached = jax.tree.map(lambda leaf: leaf, part)
        assert_same(detached(X), part(X))
        assert_same(detached.with_rng().eval()(X), part.with_rng().eval()(X))
        again = jax.tree.map(lambda leaf: leaf, detached)
        assert jax.tree.structure(again) == jax.tree.structure(part)
