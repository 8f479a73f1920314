"""Scanned and recomputed layers: parameters, values, memory, conversion."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)
IMAGE = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def encoder(**kwargs):
    return kd.nn.VitEncoder.from_spec(
        num_heads=2, hidden_size=8, num_layers=2, patch_size=2, **kwargs
    )


@pytest.fixture(scope="module")
def variables():
    return random_variables(encoder(), IMAGE)


def loss(variables, *, model):
    tokens, _ = model.apply(variables, IMAGE, mutable=True, capture_intermediates=True)
    return jnp.mean(tokens**2)


@functools.cache
def gradient_of(model):
    return jax.jit(jax.grad(functools.partial(loss, model=model)))


def assert_close(tree, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), tree, expected
    )


def test_scanned_params_have_an_axis_of_layers(variables):
    layer = {
        name.removeprefix("layers_0/"): shape
        for name, shape in param_shapes(encoder(), IMAGE).items()
        if name.startswith("layers_0/")
    }
    scanned = param_shapes(encoder(scan_layers=True), IMAGE)
    assert {n for n in scanned if n.startswith("layers")} == {
        f"layers/{name}" for name in layer
    }
    for name, shape in layer.items():
        assert scanned[f"layers/{name}"] == (2, *shape)


def test_layers_of_a_scan_start_with_values_of_their_own():
    layers = kd.nn.ScannedLayers(nn.Dense(4), num_layers=2)
    variables = jax.jit(layers.init)(KEY, np.ones((1, 4), np.float32))
    first, second = np.asarray(variables["params"]["kernel"])
    assert not np.allclose(first, second)


@pytest.mark.parametrize("remat", [False, True, "dots_saveable"])
def test_scanned_layers_compute_the_same(variables, remat):
    expected = gradient_of(encoder())(variables)
    model = encoder(scan_layers=True, remat=remat)
    grads = gradient_of(model)(kd.nn.stack_layers(variables))
    assert_close(kd.nn.unstack_layers(jax.device_get(grads)), expected)


def test_recomputed_layers_have_the_same_params_and_compute_the_same(variables):
    model = encoder(remat=True)
    assert param_shapes(model, IMAGE) == param_shapes(encoder(), IMAGE)
    assert_close(gradient_of(model)(variables), gradient_of(encoder())(variables))


def test_recomputed_layers_store_less_for_the_backward_pass(variables):
    def stored(model):
        step = functools.partial(loss, model=model)
        pull_back = jax.eval_shape(lambda v: jax.vjp(step, v)[1], variables)
        leaves = jax.tree.leaves(pull_back)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    assert stored(encoder(remat=True)) < 0.25 * stored(encoder())


def test_recomputed_scan_takes_less_memory(variables):
    stacked = kd.nn.stack_layers(variables)

    def memory(**kwargs):
        gradient = gradient_of(encoder(scan_layers=True, **kwargs))
        compiled = gradient.lower(stacked).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(remat=True) < 0.6 * memory()


def test_intermediates_of_scanned_layers_are_stacked(variables):
    model = encoder(scan_layers=True)
    _, captured = jax.eval_shape(
        lambda: model.apply(
            kd.nn.stack_layers(variables), IMAGE, mutable=["intermediates"]
        )
    )
    [weights] = captured["intermediates"]["layers"]["attention"]["attn_weights"]
    assert weights.shape == (2, 2, 2, 16, 16)


def test_arguments_and_modes_reach_scanned_and_recomputed_layers():
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, scale, *, negate=False):
            x = kd.nn.Dropout(0.5)(nn.Dense(x.shape[-1])(x) * scale)
            return -x if negate else x

    x = np.ones((2, 64), np.float32)
    for model in (
        kd.nn.ScannedLayers(Layer(), num_layers=2),
        kd.nn.ScannedLayers(Layer(), num_layers=2, remat=True),
        kd.nn.Remat(Layer()),
    ):
        variables = random_variables(model, x, 2.0, is_training_property=False)
        run = functools.partial(model.apply, variables, x, 2.0, negate=True)

        @jax.jit
        def both_modes():
            evaluated = run(is_training_property=False)
            return evaluated, run(is_training_property=True, rngs={"dropout": KEY})

        evaluated, trained = jax.device_get(both_modes())
        assert (evaluated != 0).all()
        assert 0.3 < (trained == 0).mean() < 0.7


def test_unknown_policy_is_told():
    with pytest.raises(ValueError, match=r"'dots_savable'.*'dots_saveable'"):
        encoder(remat="dots_savable")


#
# Conversion
#


def test_conversion_there_and_back_changes_nothing(variables):
    again = kd.nn.unstack_layers(kd.nn.stack_layers(variables))
    assert jax.tree.structure(again) == jax.tree.structure(variables)
    jax.tree.map(np.testing.assert_array_equal, again, variables)


def test_whole_train_state_is_converted():
    params = {f"layers_{i}": {"bias": np.full(3, i)} for i in range(11)}
    state = kd.train.TrainState(
        step=np.int32(3),
        params={"encoder": params, "head": np.ones(2)},
        opt_state=optax.adam(1e-3).init({"encoder": params}),
        collections={},
    )
    stacked = kd.nn.stack_layers(state)
    np.testing.assert_array_equal(
        stacked.params["encoder"]["layers"]["bias"][:, 0], np.arange(11)
    )
    assert stacked.opt_state[0].mu["encoder"]["layers"]["bias"].shape == (11, 3)
    assert int(stacked.step) == 3
    again = kd.nn.unstack_layers(stacked)
    jax.tree.map(np.testing.assert_array_equal, again, state)


def test_layers_that_differ_are_left_alone():
    params = {
        "layers_0": {"kernel": np.ones((3, 4))},
        "layers_2": {"kernel": np.ones((4, 2))},
        "layers": np.ones(3),
    }
    assert kd.nn.stack_layers(params).keys() == params.keys()
    assert kd.nn.unstack_layers(params).keys() == params.keys()
