"""Wrappers leave no trace in parameters and keys; foreign modules become models."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from tests.nn.param_shapes import param_shapes, random_variables

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
Wrapper = kd.nn.WrapperModule


class Inner(nn.Module):
    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(4)(x)))


class WithParts(nn.Module):
    """Its parts are bound early, and one is called `model`."""

    model: nn.Module
    head: nn.Module
    interms = kd.nn.interms_property()

    @nn.compact
    def __call__(self, x):
        self.interms["h"] = self.model(x)
        return self.head(self.interms["h"])


class WithSetup(nn.Module):
    def setup(self):
        self.model = nn.Dense(4)
        self.head = nn.Dense(2)

    def __call__(self, x):
        return self.head(self.model(x))


class Scaled(Wrapper):
    @nn.compact
    def __call__(self, x):
        return 2 * super().__call__(x)


class Checkpointed(Wrapper):
    @nn.checkpoint
    def __call__(self, x):
        return self.model(x)


class CheckpointedCompact(Wrapper):
    @nn.compact
    @nn.checkpoint
    def __call__(self, x):
        return nn.tanh(self.model(x))


MODELS = [
    Inner(),
    WithParts(Inner(), nn.Dense(1)),
    WithSetup(),
    WithParts(Wrapper(Inner()), nn.Dense(1)),
]


def wrap(model, *wrappers):
    for wrapper in wrappers:
        model = wrapper(model)
    return model


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
@pytest.mark.parametrize(
    "wrappers",
    [
        (Wrapper,),
        (Wrapper, Wrapper),
        (Wrapper, Scaled, Wrapper),
        (Checkpointed,),
        (Wrapper, CheckpointedCompact, Checkpointed),
    ],
    ids=lambda wrappers: "-".join(wrapper.__name__ for wrapper in wrappers),
)
def test_params_are_those_of_the_model(model, wrappers):
    wrapped = wrap(model, *wrappers)
    assert param_shapes(wrapped, X) == param_shapes(model, X)
    inside = kd.nn.Sequential(layers=[jnp.negative, wrapped])
    expected = kd.nn.Sequential(layers=[jnp.negative, model])
    assert param_shapes(inside, X) == param_shapes(expected, X)


def test_wrapped_model_computes_the_same_and_has_gradients():
    model = WithParts(Inner(), nn.Dense(1))
    variables = random_variables(model, X)

    def result_and_gradients(m):
        def total(variables):
            result = m.apply(variables, X)
            return result.sum(), result

        grads, result = jax.jit(jax.grad(total, has_aux=True))(variables)
        return result, grads

    expected, expected_grads = result_and_gradients(model)
    for wrapped in (wrap(model, Wrapper, Wrapper), wrap(model, Checkpointed, Wrapper)):
        result, grads = result_and_gradients(wrapped)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
            *(grads, expected_grads),
        )


def test_outputs_of_wrapper_and_model_are_captured_together():
    model = Wrapper(WithParts(Inner(), nn.Dense(1)))
    variables = random_variables(model, X)
    run = functools.partial(model.apply, capture_intermediates=True)
    _, captured = jax.eval_shape(run, variables, X)
    interms = captured["intermediates"]
    assert len(interms["__call__"]) == 2
    assert set(interms) == {"__call__", "h", "model", "head"}


def test_keys_are_those_of_the_model():
    assert kontext.get_keypaths(wrap(Inner(x="batch.a"), Wrapper, Scaled)) == {
        "x": "batch.a"
    }


def train(model):
    """Train a model for two steps on `batch.a`, and return the parameters."""
    data = {"a": np.ones((8, 3), np.float32), "y": np.ones((8, 2), np.float32)}
    trainer = kd.train.Trainer(
        train_ds=kd.data.py.Arrays(data, shuffle=False, batch_size=4),
        model=model,
        train_losses={"l2": kd.losses.L2(preds="preds", targets="batch.y")},
        optimizer=optax.sgd(0.1),
        num_train_steps=2,
    )
    state = trainer.init_state()
    batch = jax.device_put(next(iter(trainer.train_ds)))
    return trainer.trainstep.step(state, batch)[0].params


def test_wrapper_of_a_model_without_keys_gets_the_whole_batch():
    class Whole(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return nn.Dense(2)(batch["a"])

    jax.tree.map(np.testing.assert_array_equal, train(Wrapper(Whole())), train(Whole()))


#
# Foreign modules
#


class Foreign(nn.Module):
    @nn.compact
    def __call__(self, x, y=0.0, *, deterministic=None, train=None):
        return nn.Dense(2)(x) + y, deterministic, train


def test_keys_by_name_and_by_position():
    external = kd.nn.ExternalModule
    by_name = external(model=Foreign(), keys={"x": "batch.a", "y": "batch.b"})
    assert kontext.get_keypaths(by_name) == {"x": "batch.a", "y": "batch.b"}
    single = external(model=Foreign(), keys="batch.a")
    assert kontext.get_keypaths(single) == {"__args__": "batch.a"}
    several = external(model=Foreign(), keys=["batch.a", "batch.b"])
    assert kontext.get_keypaths(several) == {"__args__": ("batch.a", "batch.b")}
    variables = random_variables(Foreign(), X)
    plain = Foreign().apply(variables, X, 1.0)[0]
    for module, kwargs in [
        (by_name, {"x": X, "y": 1.0}),
        (several, {"__args__": (X, 1.0)}),
    ]:
        np.testing.assert_array_equal(module.apply(variables, **kwargs)[0], plain)
    np.testing.assert_array_equal(
        single.apply(variables, __args__=X)[0], Foreign().apply(variables, X)[0]
    )
    np.testing.assert_array_equal(single.apply(variables, X, 1.0)[0], plain)
    assert hash(by_name) != hash(single)


@pytest.mark.parametrize("is_training", [True, False])
def test_mode_is_passed_as_an_argument(is_training):
    for name, position, value in [
        ("train", 2, is_training),
        ("~deterministic", 1, not is_training),
    ]:
        module = kd.nn.ExternalModule(
            model=Foreign(), keys="batch.a", train_kwarg_name=name
        )
        variables = random_variables(Foreign(), X)
        out = module.apply(variables, X, is_training_property=is_training)
        assert out[position] is value


def test_mode_is_read_only_if_the_model_takes_it():
    module = kd.nn.ExternalModule(model=Foreign(), keys="batch.a")
    assert module.apply(random_variables(Foreign(), X), X)[1:] == (None, None)
    module = kd.nn.ExternalModule(model=Foreign(), keys="x", train_kwarg_name="train")
    with pytest.raises(ValueError, match="is_training_property"):
        module.init(KEY, X)


def test_keys_are_required():
    with pytest.raises(TypeError, match="keys"):
        kd.nn.ExternalModule(model=Foreign())


def test_foreign_module_trains():
    module = kd.nn.ExternalModule(model=nn.Dense(2), keys="batch.a")
    assert set(train(module)) == {"kernel", "bias"}
