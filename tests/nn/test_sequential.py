"""Layers one after the other."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd

X = jnp.arange(6.0).reshape(2, 3)
KEY = jax.random.PRNGKey(0)


def run(*layers, **kwargs):
    model = kd.nn.Sequential(layers=layers, inputs="batch.x", **kwargs)
    return model.init_with_output(KEY, X)[0]


def test_layers_are_applied_in_order():
    np.testing.assert_array_equal(run(lambda x: x + 1, lambda x: 2 * x), 2 * (X + 1))


def test_without_layers_it_is_the_identity():
    np.testing.assert_array_equal(run(), X)


def test_output_gets_its_name():
    assert list(run(nn.Dense(4), outputs="y")) == ["y"]


def test_tuples_and_mappings_are_spread():
    split = run(lambda x: (x, 1.0), lambda x, n: {"a": x, "b": n}, lambda a, b: a + b)
    np.testing.assert_array_equal(split, X + 1)


@pytest.mark.parametrize("shared, count", [(True, 1), (False, 3)])
def test_repeated_layer_has_weights_of_its_own_or_shared_ones(shared, count):
    model = kd.nn.Sequential.from_repeated(nn.Dense(3), 3, shared_weights=shared)
    assert len(model.init(KEY, X)["params"]) == count


@pytest.mark.parametrize(
    "layers, message",
    [
        ([nn.relu, nn.Dense], r"layers\[1\] \(Dense\): .*call it: Dense\(\.\.\.\)"),
        ([nn.Dense(2), "relu"], r"layers\[1\] \(str\): .*module or a function"),
        (nn.Dense(2), r"`layers` is a list"),
    ],
)
def test_what_is_no_layer_is_told(layers, message):
    with pytest.raises(TypeError, match=message):
        kd.nn.Sequential(layers=layers, inputs="batch.x").init(KEY, X)


def test_error_of_a_layer_names_the_layer():
    with pytest.raises(Exception, match=r"layers\[1\] \(Rearrange\): .*b c d"):
        run(nn.Dense(2), kd.nn.Rearrange("b c d -> b (c d)"))
