"""How modules are written, and that raw ones are plain flax modules."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax.core import FrozenDict

from kauldron import klinen as knn
from tests.klinen.toy import MLP, AutoEncoder, X, assert_same

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
        return nn.Dense(self.extra)(super().__call__(x))


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
    assert KwOnly(inner=nn.Dense(8)).init_bind(0, X)(X).shape == (4, 8)
    assert Derived().init_bind(0, X).eval()(X).shape == (4, 8)
    assert Box(inside=nn.Dense(8)).init_bind(0, X).inside(X).shape == (4, 8)
    assert Box[nn.Dense](inside=nn.Dense(8)).init_bind(0, X)(X).shape == (4, 8)


def test_linen_inside_klinen_inside_linen():
    class Outer(nn.Module):
        part: nn.Module

        @nn.compact
        def __call__(self, x):
            return nn.Sequential([self.part, MLP()])(x)

    class Mixed(knn.Module):
        @nn.compact
        def __call__(self, x):
            return Outer(part=AutoEncoder(encoder=nn.Dense(8), decoder=MLP()))(x)

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
    model = Containers({"b": [nn.Dense(8), MLP()], "a": (nn.Dense(8, name="mine"),)})
    key = jax.random.PRNGKey(3)
    bound = model.init_bind(key, X)
    expected = model.init(key, X)["params"]
    assert set(bound.params) == {"items_a_0", "items_b_0", "items_b_1"}
    assert_same(bound.params, FrozenDict(expected))


def test_preserve_adopted_names_of_flax_is_respected():
    class Keeps(AutoEncoder):
        preserve_adopted_names = True

    model = Keeps(encoder=nn.Dense(8, name="mine"), decoder=MLP()).init_bind(0, X)
    assert set(model.params) == {"mine", "decoder"}
    assert_same(model.encoder.params, model.params["mine"])


@pytest.mark.parametrize(
    "items",
    [
        [nn.Dense(8), nn.Dense(8)],
        (nn.Dense(8), 3, nn.Dense(8)),
        {"z": nn.Dense(8), "a": nn.Dense(8)},
        FrozenDict({"z": nn.Dense(8), "a": nn.Dense(8)}),
        Pair(nn.Dense(8), [nn.Dense(8)]),
        {"x": [({"y": nn.Dense(8)}, "text")]},
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
    model = Containers({"d": [3, function], "m": nn.Dense(8)}).init_bind(0, X)
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
                x = nn.Dense(size)(x)
            return x

    raw = Net(sizes)
    model = raw.init_bind(0, X)
    sizes.append(5)
    model.sizes.append(6)
    assert model.sizes == [8, 8]
    assert model(X).shape == (4, 8)
