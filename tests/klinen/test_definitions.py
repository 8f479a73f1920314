"""Defining modules; copies, pickles and sharing of what was defined."""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle
from typing import Any, Generic, NamedTuple, TypeVar

import flax.errors
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
    differ,
)

#
# Defining
#


_T = TypeVar("_T")


class Own(knn.Module):
    """Own parameters, variables, random numbers and sown values."""

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.constant(2.0), ())
        seen = self.variable("state", "seen", lambda: jnp.zeros(()))
        seen.value += 1.0
        self.sow("intermediates", "noise_scale", scale)
        return scale * x + 0 * jax.random.normal(self.make_rng("noise"), x.shape)

    @nn.nowrap
    def helper(self):
        return type(self).__name__


class KwOnly(knn.Module, kw_only=True):
    width: int = 4
    inner: nn.Module

    def __call__(self, x):
        return self.inner(x) * self.width


class Derived(MLP):
    extra: int = 8

    @nn.compact
    def __call__(self, x):
        return Dense(self.extra)(super().__call__(x))


class Box(knn.Module, Generic[_T]):
    inside: _T

    def __call__(self, x):
        return self.inside(x)


class Containers(knn.Module):
    items: Any

    def __call__(self, x):
        for leaf in jax.tree.leaves(
            self.items, is_leaf=lambda v: isinstance(v, nn.Module)
        ):
            x = leaf(x) if isinstance(leaf, nn.Module) else x
        return x


class Pair(NamedTuple):
    first: Any
    second: Any


def test_everything_of_flax_works_in_a_module():
    model = Own().init_bind({"params": 0, "noise": 1}, X, streams=("noise",))
    assert_same(model.with_rng(0)(X), 2 * X)
    assert model.helper() == "Own"


def test_keyword_only_inherited_and_generic_classes():
    assert KwOnly(inner=Dense(8)).init_bind(0, X)(X).shape == (4, 8)
    assert Derived().init_bind(0, X).eval()(X).shape == (4, 8)
    assert Box(inside=Dense(8)).init_bind(0, X).inside(X).shape == (4, 8)
    assert Box[nn.Dense](inside=Dense(8)).init_bind(0, X)(X).shape == (4, 8)


def test_linen_inside_klinen_inside_linen():
    class Outer(nn.Module):
        part: nn.Module

        @nn.compact
        def __call__(self, x):
            return nn.Sequential([self.part, MLP()])(x)

    class Mixed(knn.Module):
        @nn.compact
        def __call__(self, x):
            return Outer(part=AutoEncoder(encoder=Dense(8), decoder=MLP()))(x)

    model = Mixed().init_bind(0, X).with_rng(0)
    variables = Mixed().init(jax.random.PRNGKey(0), X)
    assert_same(jax.tree.leaves(model.params), jax.tree.leaves(variables["params"]))
    assert model(X).shape == (4, 8)
    with pytest.raises(flax.errors.InvalidRngError, match="MLP_0/Dropout_0"):
        Mixed().init_bind(0, X)(X)


def test_raw_modules_are_plain_flax_modules():
    raw = AutoEncoder(encoder=MLP(), decoder=MLP())
    key = jax.random.PRNGKey(0)
    variables = raw.init(key, X)
    y = raw.apply(variables, X, rngs={"dropout": key})
    bound_by_flax = raw.bind(variables, rngs={"dropout": key})
    assert_same(bound_by_flax(X), y)
    assert "AutoEncoder Summary" in raw.tabulate(key, X)
    assert raw.clone() == raw
    assert raw.copy(encoder=MLP(3)).encoder.features == 3
    assert hash(raw) == hash(raw.clone())
    assert repr(raw) == repr(raw.clone())
    assert copy.deepcopy(raw) == raw
    names = [field.name for field in dataclasses.fields(AutoEncoder)]
    assert sorted(names) == ["decoder", "encoder", "name", "parent"]


def test_parameters_are_named_by_flax():
    model = Containers({"b": [Dense(8), MLP()], "a": (Dense(8, name="mine"),)})
    key = jax.random.PRNGKey(3)
    bound = model.init_bind(key, X)
    expected = model.init(key, X)["params"]
    assert set(bound.params) == {"items_a_0", "items_b_0", "items_b_1"}
    assert_same(bound.params, FrozenDict(expected))


def test_preserve_adopted_names_of_flax_is_respected():
    class Keeps(AutoEncoder):
        preserve_adopted_names = True

    model = Keeps(encoder=Dense(8, name="mine"), decoder=MLP()).init_bind(0, X)
    assert set(model.params) == {"mine", "decoder"}
    assert_same(model.encoder.params, model.params["mine"])


@pytest.mark.parametrize(
    "items",
    [
        [Dense(8), Dense(8)],
        (Dense(8), 3, Dense(8)),
        {"z": Dense(8), "a": Dense(8)},
        FrozenDict({"z": Dense(8), "a": Dense(8)}),
        Pair(Dense(8), [Dense(8)]),
        {"x": [({"y": Dense(8)}, "text")]},
    ],
)
def test_containers_keep_their_types(items):
    model = Containers(items).init_bind(0, X)
    is_leaf = lambda value: isinstance(value, nn.Module)  # noqa: E731
    found = jax.tree.leaves(model.items, is_leaf=is_leaf)
    assert type(model.items) is type(items)
    assert list(model.items) == list(items)
    modules = [leaf for leaf in found if isinstance(leaf, nn.Module)]
    y = X
    for module in modules:
        y = module(y)
    assert_same(model(X), y)


def test_dicts_keep_their_order_and_other_things_their_identity():
    function = object()
    model = Containers({"d": [3, function], "m": Dense(8)}).init_bind(0, X)
    assert model.items["d"][1] is function
    assert list(Containers({"z": 1, "a": 2}).init_bind(0, X).items) == ["z", "a"]
    ordered = collections.OrderedDict(z=1, a=function)
    kept = Containers(ordered).init_bind(0, X).items
    assert type(kept) is collections.OrderedDict and list(kept) == ["z", "a"]


@pytest.mark.parametrize(
    "name",
    ["params", "training", "train", "eval", "rngs", "with_rng", "variables", "unbind"],
)
def test_reserved_names_are_no_fields(name):
    with pytest.raises(TypeError, match=f"`{name}`"):
        type("Bad", (knn.Module,), {"__annotations__": {name: int}})


def test_the_bound_model_ignores_later_changes_of_the_raw_one():
    sizes = [8, 8]

    class Net(knn.Module):
        sizes: list[int]

        @nn.compact
        def __call__(self, x):
            for size in self.sizes:
                x = Dense(size)(x)
            return x

    raw = Net(sizes)
    model = raw.init_bind(0, X)
    sizes.append(5)
    model.sizes.append(6)
    assert model.sizes == [8, 8]
    assert model(X).shape == (4, 8)


#
# Copies and pickles
#


DUPLICATES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}

WHICH = (
    "model",
    "eval",
    "typed keys",
    "handle",
    "statistics",
    "setup",
    "params only",
    "rbg",
)


def _models():
    typed = auto_encoder().with_rng({"dropout": jax.random.key(3)})
    rbg = {"dropout": jax.random.key(3, impl="rbg")}
    setup = AutoEncoder(encoder=SetupNet(), decoder=MLP()).init_bind(0, X)
    return {
        "model": auto_encoder().with_rng(1),
        "eval": auto_encoder().eval(),
        "typed keys": typed,
        "handle": auto_encoder().with_rng(1).decoder,
        "statistics": Normed().init_bind(0, X),
        "setup": setup.with_rng(2).encoder.trunk,
        "params only": auto_encoder().with_rng(1).param_tree_on(),
        "rbg": auto_encoder().with_rng(rbg),
    }


@pytest.fixture(scope="module")
def models():
    """Models, and what they compute."""
    return {which: (model, model(X)) for which, model in _models().items()}


@pytest.mark.parametrize("how", DUPLICATES)
@pytest.mark.parametrize("which", WHICH)
def test_copies_compute_the_same(which, how, models):
    model, result = models[which]
    duplicate = DUPLICATES[how](model)
    assert duplicate is not model
    assert type(duplicate) is type(model)
    assert duplicate.unbind()[0] == model
    assert duplicate.training == model.training
    assert_same(duplicate.params, model.params)
    assert {k: v.dtype for k, v in duplicate.rngs.items()} == {
        k: v.dtype for k, v in model.rngs.items()
    }
    assert_same(duplicate(X), result)
    if which != "params only":
        assert jax.tree.structure(duplicate) == jax.tree.structure(model)


#
# Sharing
#


class Across(knn.Module):
    """A module as a field, and in the container of another one."""

    shared: nn.Module
    block: nn.Module

    def __call__(self, x):
        return self.block(self.shared(x))


class MadeInSetup(knn.Module):
    def setup(self):
        self.shared = MLP()
        self.pair = AutoEncoder(encoder=self.shared, decoder=MLP())

    def __call__(self, x):
        return self.pair(self.shared(x))


def _same_level():
    part = MLP()
    return AutoEncoder(encoder=part, decoder=part)


def _across():
    part = MLP()
    return Across(shared=part, block=knn.Sequential([part, Dense(8)]))


def test_two_fields_with_one_instance_are_one_module():
    model = _same_level().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"encoder"}
    assert model.encoder is model.decoder
    evaluated = model.eval()
    assert evaluated.encoder is evaluated.decoder
    assert_same(model.encoder.params, model.params["encoder"])
    equal_but_not_shared = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(0, X)
    assert set(equal_but_not_shared.params) == {"encoder", "decoder"}


def test_a_field_and_another_modules_container_share_one_set_of_parameters():
    model = _across().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"shared", "block"}
    assert set(model.params["block"]) == {"layers_1"}
    assert model.block.layers[0] is model.shared
    assert_same(model.block.layers[0].params, model.params["shared"])
    parts = model.block.layers[1](model.shared(X))
    assert_same(model.block(X), parts)


def test_the_part_that_does_not_own_the_parameters_finds_them():
    model = _across().init_bind(0, X).with_rng(0)
    f = jax.jit(lambda m, x: m(x))
    assert_same(f(model.block, X), jax.jit(lambda x: model.block(x))(X))
    detached = jax.tree.map(lambda leaf: leaf, model.block)
    assert_same(detached.layers[0].params, model.shared.params)
    assert_same(detached(X), model.block(X))


def test_sharing_in_setup():
    model = MadeInSetup().init_bind(0, X).with_rng(0)
    assert set(model.params) == {"shared", "pair"}
    assert set(model.params["pair"]) == {"decoder"}
    assert model.pair.encoder is model.shared
    detached = jax.tree.map(lambda leaf: leaf, model.pair)
    assert_same(detached(X), model.pair(X))


def test_sharing_survives_derivations_copies_and_transformations():
    model = _across().init_bind(0, X).with_rng(0)
    for other in (
        model.eval(),
        model.with_rng(),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        jax.jit(lambda m: m)(model),
        model.init_bind(1, X),
        model.clone().init_bind(1, X),
    ):
        assert other.block.layers[0] is other.shared
        assert set(other.params["block"]) == {"layers_1"}


def test_changing_one_place_changes_the_other():
    model = _same_level().init_bind(0, X).eval()
    zeros = jax.tree.map(lambda leaf: 0 * leaf, model.decoder.params)
    changed = model.decoder.with_params(zeros)
    assert_same(changed.params, zeros)
    assert_same(changed(X), 0 * X)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_shared_and_equal_modules_are_not_confused_by_jit(mode):
    drop = knn.Dropout(0.5)
    shared = AutoEncoder(encoder=drop, decoder=drop)
    separate = AutoEncoder(encoder=knn.Dropout(0.5), decoder=knn.Dropout(0.5))
    assert shared == separate
    f = jax.jit(lambda m, x: m(x))
    outputs = []
    for raw in (shared, separate):
        model = getattr(raw.init_bind(0, X).with_rng(0), mode)()
        assert_same(f(model, X), model(X))
        outputs.append(model(X))
    assert differ(*outputs) == (mode == "train")
