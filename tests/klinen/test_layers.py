"""Flax classes as klinen classes, and the ready-made layers."""

import copy
import pickle

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from kauldron import klinen as knn
from tests.klinen.toy import X, assert_close, assert_same, differ


class MyLinen(nn.Module):
    """A class of flax, with methods and a field called `train`."""

    train: bool
    width: int = 8
    params: str = "mine"

    def setup(self):
        self.dense = nn.Dense(self.width)

    def __call__(self, x):
        return self.dense(x) * (2 if self.train else 1)

    def half(self, x):
        return self(x) / 2

    def eval(self, x):
        return self(x) * 3


class NoDefault(nn.Module):
    """A field without default that is also a property of klinen modules."""

    training: bool
    collections: int = 3

    @nn.compact
    def __call__(self, x):
        return x * self.collections if self.training else x


@knn.convert
class Decorated(nn.Module):
    """Converted where it is defined."""

    width: int = 8

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(x)


class MyDense(knn.Dense):
    """A subclass of a converted class."""

    scale: float = 2.0

    @nn.compact
    def __call__(self, inputs):
        return super().__call__(inputs) * self.scale


class Unhelpful:
    pass


Converted = knn.convert(MyLinen)


def test_the_class_has_the_name_of_the_original():
    assert issubclass(Converted, MyLinen) and issubclass(Converted, knn.Module)
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(Converted, attribute) == getattr(MyLinen, attribute)
    assert knn.convert(MyLinen) is Converted
    assert knn.convert(Converted) is Converted
    assert knn.convert(knn.Dense) is knn.Dense


def test_outputs_are_those_of_the_original():
    model = Converted(train=True).init_bind(0, X)
    key = jax.random.PRNGKey(0)
    variables = MyLinen(train=True).init(key, X)
    assert_same(model(X), MyLinen(train=True).apply(variables, X))
    assert_close(model.half(X), model(X) / 2)


def test_own_attributes_win_over_those_of_klinen():
    model = Converted(train=False).init_bind(0, X)
    assert model.train is False
    assert model.params == "mine"
    assert_same(model.eval(X), model(X) * 3)
    evaluated = jax.tree.map(lambda leaf: leaf, model.with_rng(3)).with_rng()
    assert_same(evaluated(X), model(X))
    for training in (True, False):
        module = knn.convert(NoDefault)(training=training)
        assert module.training is training
        bound = module.init_bind(0, X)
        assert bound.training is training and bound.collections == 3
        assert_same(bound(X), X * 3 if training else X)


def test_such_modules_have_handles_too():
    model = knn.Sequential([MyLinen(train=True), nn.Dense(8)]).init_bind(0, X)
    assert model.layers[0].train is True
    assert_same(model.layers[1](model.layers[0](X)), model(X))
    assert_same(model.layers[0].half(X) * 2, model.layers[0](X))


def test_instances_become_instances():
    dense = nn.Dense(8, use_bias=False, name="mine")
    converted = knn.convert(dense)
    assert type(converted) is knn.Dense
    assert (converted.features, converted.use_bias, converted.name) == (
        8,
        False,
        "mine",
    )
    assert converted.init_bind(0, X)(X).shape == (4, 8)
    assert knn.convert(converted) is converted


@pytest.mark.parametrize("target", [Unhelpful, Unhelpful(), 3, "nn.Dense", len])
def test_anything_else_is_a_type_error(target):
    with pytest.raises(TypeError, match=r"derives from `flax\.linen\.Module`"):
        knn.convert(target)


@pytest.mark.parametrize(
    "module",
    [
        Converted(train=True, width=8),
        Decorated(),
        MyDense(8),
        knn.Dense(8),
        knn.Sequential([nn.Dense(8), knn.Dropout(0.5), knn.Dense(8)]),
    ],
    ids=lambda module: type(module).__name__,
)
def test_raw_and_bound_instances_pickle_and_copy(module):
    bound = module.init_bind(0, X).with_rng(1)
    expected = bound(X)
    for duplicate in (
        copy.deepcopy,
        copy.copy,
        lambda m: pickle.loads(pickle.dumps(m)),
    ):
        raw = duplicate(module)
        assert type(raw) is type(module) and raw == module
        assert_same(raw.init_bind(0, X).with_rng(1)(X), expected)
        again = duplicate(bound)
        assert type(again) is type(bound)
        assert_same(again(X), expected)


def test_dropout_follows_the_mode_alone():
    dropout = knn.Dropout(0.5)
    assert isinstance(dropout, nn.Dropout)
    model = dropout.init_bind(0, X).with_rng(0)
    assert_same(model.eval()(X), X)
    assert differ(model(X), X)
    key = jax.random.PRNGKey(3)
    expected = nn.Dropout(0.5, deterministic=False).apply({}, X, rngs={"dropout": key})
    assert_same(model.with_rng({"dropout": key})(X), expected)
    with pytest.raises(ValueError, match="deterministic"):
        knn.Dropout(0.5, deterministic=True)
    with pytest.raises(TypeError):
        model(X, deterministic=True)


def test_layers_are_those_of_flax():
    dense = knn.Dense(8).init_bind(0, X)
    variables = nn.Dense(8).init(jax.random.PRNGKey(0), X)
    assert_same(dense.params, nn.FrozenDict(variables["params"]))
    layers = knn.Sequential([knn.Dense(8), nn.relu, knn.Dense(8)]).init_bind(0, X)
    assert layers.layers[1] is nn.relu
    assert_same(layers(X), layers.layers[2](nn.relu(layers.layers[0](X))))
    assert jnp.isfinite(layers(X)).all()
