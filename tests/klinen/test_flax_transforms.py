"""Flax's lifted transforms around and inside klinen modules."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax.core import unfreeze

from kauldron import klinen as knn
from tests.klinen.toy import X, assert_close, assert_same


class Block(knn.Module):
    """A klinen module with a klinen field, in the form that `nn.scan` wants."""

    inner: nn.Module

    def __call__(self, x, _=None):
        return x + self.inner(x), None


def _remat(cls):
    return nn.remat(cls)(inner=knn.Dense(8))


def _scan(cls):
    scanned = nn.scan(
        cls,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True},
        length=3,
    )
    return scanned(inner=knn.Dense(8))


def _vmap(cls):
    mapped = nn.vmap(
        cls,
        in_axes=None,
        axis_size=3,
        variable_axes={"params": 0},
        split_rngs={"params": True},
    )
    return mapped(inner=knn.Dense(8))


def _jit(cls):
    return nn.jit(cls)(inner=knn.Dense(8))


TRANSFORMS = [_remat, _scan, _vmap, _jit]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_around_a_raw_class_with_klinen_fields(transform):
    key = jax.random.PRNGKey(0)
    raw = transform(Block)
    bound = raw.init_bind(key, X)
    expected = jax.eval_shape(raw.init, key, X)["params"]
    shapes = jax.tree.map(jnp.shape, unfreeze(bound.params))
    assert shapes == jax.tree.map(jnp.shape, expected)
    y, _ = raw.apply(bound.variables, X)
    grads, output = jax.jit(
        jax.grad(lambda m, x: (m(x)[0].sum(), m(x)[0]), has_aux=True)
    )(bound, X)
    assert_close(output, y)
    assert jax.tree.structure(grads) == jax.tree.structure(bound)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_inside_of_a_klinen_module(transform):
    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            y, _ = transform(Block)(x)
            return nn.Dense(8)(y)

    model = Net().init_bind(0, X)
    expected = Net().apply(model.variables, X)
    assert_same(model(X), expected)


def test_as_a_decorator_of_a_method():
    class Net(knn.Module):
        inner: nn.Module

        @nn.remat
        def block(self, x):
            return self.inner(x)

        def __call__(self, x):
            return self.block(x) * 2

    model = Net(knn.Dense(8)).init_bind(0, X)
    assert_close(model(X), 2 * model.inner(X))
    assert_close(model.block(X), model.inner(X))


def test_as_a_function_of_a_module():
    class Net(knn.Module):
        inner: nn.Module

        def __call__(self, x):
            return nn.remat(lambda module, x: module.inner(x))(self, x)

    model = Net(knn.Dense(8)).init_bind(0, X)
    assert_close(model(X), model.inner(X))


def test_handles_of_a_transformed_class():
    model = _remat(Block).init_bind(0, X)
    assert_close(model(X)[0], X + model.inner(X))
    assert_same(model.inner.params, model.params["inner"])


def test_intermediates_inside_of_transforms():
    class Storing(knn.Module):
        inner: nn.Module
        last: knn.Intermediate[jax.Array] = dataclasses.field(init=False)

        def __call__(self, x, _=None):
            self.last = self.inner(x)
            return x + self.last, None

    _, stored = _remat(Storing).init_bind(0, X).call_with_intermediate(X)
    assert stored.last.shape == X.shape
    _, stored = _scan(Storing).init_bind(0, X).call_with_intermediate(X)
    assert stored.last.shape == (3, *X.shape)
    (y, _), stored = _vmap(Storing).init_bind(0, X).call_with_intermediate(X)
    assert y.shape == (3, *X.shape)
    with pytest.raises(AttributeError, match="was not set during the call"):
        stored.last  # the transform does not carry it out


def test_a_bound_model_is_an_argument_of_a_transformed_method():
    teacher = knn.Dense(8).init_bind(0, X)

    class Net(knn.Module):
        @nn.remat
        def block(self, model, x):
            return model(x)

        def __call__(self, model, x):
            return self.block(model, x)

    model = Net().init_bind(0, teacher, X)
    assert_close(model(teacher, X), teacher(X))
    assert jnp.isfinite(model(teacher, X)).all()
