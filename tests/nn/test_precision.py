"""Any model computes in 16 bits; parameters, results and gradients have 32."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from tests.nn.param_shapes import param_shapes, random_variables, variable_specs

KEY = jax.random.key(0)
IMAGE = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def dtypes(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def vit(**kwargs):
    sizes = {"num_heads": 2, "hidden_size": 16, "num_layers": 1, "patch_size": 4}
    encoder = kd.nn.VitEncoder.from_spec(**sizes | kwargs)
    return kd.nn.Vit(encoder=encoder, num_classes=3, image="batch.image")


def conv_net():
    layers = [nn.Conv(4, (3, 3)), nn.GroupNorm(2), nn.relu, nn.Dense(3)]
    return kd.nn.Sequential(layers=layers, inputs="batch.image", outputs="logits")


@pytest.mark.parametrize("make", [vit, conv_net])
def test_model_is_the_same_and_computes_in_16_bits(make):
    model, mixed = make(), kd.nn.MixedPrecision(model=make())
    assert kontext.get_keypaths(mixed) == kontext.get_keypaths(model)
    assert param_shapes(mixed, IMAGE) == param_shapes(model, IMAGE)
    variables = random_variables(model, IMAGE)

    @jax.jit
    def run(variables):
        ours = mixed.apply(variables, IMAGE, mutable=True, capture_intermediates=True)
        return ours, model.apply(variables, IMAGE)

    (preds, captured), exact = run(variables)
    assert dtypes(preds) == dtypes(captured["params"]) == {"float32"}
    interms = captured["intermediates"]
    hidden = interms["encoder" if "encoder" in interms else "layers_0"]["__call__"]
    assert dtypes(hidden) == {"bfloat16"}
    exact = np.asarray(exact["logits"])
    difference = abs(np.asarray(preds["logits"]) - exact).max()
    assert 0 < difference < 0.05 * abs(exact).max()


def test_initial_values_are_those_of_the_model():
    model = conv_net()

    @jax.jit
    def init():
        mixed = kd.nn.MixedPrecision(model=model)
        return [module.init(KEY, IMAGE) for module in (mixed, model)]

    jax.tree.map(np.testing.assert_array_equal, *init())


def test_gradients_have_32_bits_and_are_near():
    model, mixed = conv_net(), kd.nn.MixedPrecision(model=conv_net())
    variables = random_variables(model, IMAGE)

    def gradient(module):
        def loss(variables):
            logits = module.apply(variables, IMAGE)["logits"]
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, np.arange(128).reshape(2, 8, 8) % 3
            ).mean()

        return jax.grad(loss)(variables)

    @jax.jit
    def gradients():
        ours, exact = gradient(mixed), gradient(model)
        difference = optax.tree.norm(optax.tree.sub(ours, exact))
        return ours, difference, optax.tree.norm(exact)

    ours, difference, size = gradients()
    assert dtypes(ours) == {"float32"}
    assert difference < 0.03 * size


def test_less_is_stored_for_the_backward_pass():
    def stored(module):
        def loss(variables):
            return module.apply(variables, IMAGE)["logits"].mean()

        variables = variable_specs(vit(), IMAGE)
        pull_back = jax.eval_shape(lambda v: jax.vjp(loss, v)[1], variables)
        leaves = jax.tree.leaves(pull_back)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    # The norms compute in 32 bits; CPUs do so with everything, after compilation.
    assert stored(kd.nn.MixedPrecision(model=vit())) < 0.75 * stored(vit())


def test_statistics_keep_32_bits_and_other_inputs_their_type():
    class Net(nn.Module):
        is_training = kd.nn.train_property()

        @nn.compact
        def __call__(self, ids, x):
            assert ids.dtype == jnp.int32
            x = nn.Embed(5, 4)(ids) + x
            x = nn.BatchNorm(use_running_average=not self.is_training)(x)
            return x, ids, "text"

    ids, x = np.arange(3, dtype=np.int32), np.ones((3, 4), np.float32)
    model = kd.nn.MixedPrecision(model=Net())

    @jax.jit
    def run():
        variables = model.init(KEY, ids, x, is_training_property=True)
        (y, same, text), new = model.apply(
            variables, ids, x, is_training_property=True, mutable=["batch_stats"]
        )
        assert text == "text"
        return variables, y, same, new

    variables, y, same, new = run()
    assert dtypes(variables) == dtypes(new) == {"float32"}
    assert (y.dtype, same.dtype) == (jnp.float32, jnp.int32)


def test_layer_can_ask_for_32_bits_and_a_part_can_be_wrapped():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = nn.Dense(4)(x)
            return h.dtype, nn.Dense(4, dtype=jnp.float32)(h).dtype

    x = np.ones((1, 2), np.float32)
    model = kd.nn.MixedPrecision(model=Net())
    variables = random_variables(model, x)
    assert model.apply(variables, x) == (jnp.bfloat16, jnp.float32)
    parts = kd.nn.Sequential(
        layers=[kd.nn.MixedPrecision(nn.Dense(3), output_dtype="bfloat16"), nn.Dense(2)]
    )
    assert set(param_shapes(parts, x)) == {
        f"layers_{i}/{name}" for i in range(2) for name in ("kernel", "bias")
    }


def test_one_line_of_a_config_trains_in_16_bits():
    data = {
        "image": np.zeros((8, 8, 8, 3), np.float32),
        "label": np.zeros((8, 1), np.int32),
    }
    trainer = kd.train.Trainer(
        train_ds=kd.data.py.Arrays(data, shuffle=False, batch_size=4),
        model=kd.nn.MixedPrecision(model=vit()),
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
                logits="preds.logits", labels="batch.label"
            )
        },
        optimizer=optax.adam(1e-3),
        num_train_steps=1,
    )
    context = trainer.context_specs
    assert str(context.interms["encoder"]["__call__"][0].dtype) == "bfloat16"
    assert str(context.preds["logits"].dtype) == "float32"
    assert dtypes(context.grads) == {"float32"}
    assert str(context.loss_total.dtype) == "float32"
    assert dtypes(trainer.state_specs.params) == {"float32"}
