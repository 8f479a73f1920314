"""Train and eval, and that the two never share a trace."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from kauldron import kd
from kauldron import klinen as knn
from tests.klinen.toy import (
    MLP,
    AutoEncoder,
    Dense,
    X,
    assert_same,
    auto_encoder,
    differ,
)


class Mode(knn.Module):
    """Returns the mode as a number."""

    @nn.compact
    def __call__(self, x):
        return x * 0 + (1.0 if self.training else 2.0)


def test_the_mode_is_static():
    model = auto_encoder().with_rng(0)
    assert type(model.training) is bool
    same = jax.tree.structure(model), jax.tree.structure(model.eval())
    assert same[0] != same[1]
    assert_same(jax.tree.leaves(model), jax.tree.leaves(model.eval()))


def test_one_jitted_function_has_two_traces():
    traces = []

    @jax.jit
    def f(model, x):
        traces.append(model.training)
        return model(x)

    model = auto_encoder().with_rng(0)
    train, evaluated = f(model, X), f(model.eval(), X)
    assert differ(train, evaluated)
    assert_same(evaluated, f(model.eval().with_rng(3), X))
    assert_same(f(model, X), train)
    assert traces == [True, False]


def test_ten_models_that_differ_in_keys_or_weights_have_one_trace():
    traces = []

    @jax.jit
    def f(model, x):
        traces.append(1)
        return model(x)

    for seed in range(10):
        f(auto_encoder(seed).with_rng(seed), X)
    assert len(traces) == 1


def test_eval_inside_jit():
    model = auto_encoder().with_rng(0)
    inside = jax.jit(lambda m, x: m.eval()(x))(model, X)
    outside = jax.jit(lambda m, x: m(x))(model.eval(), X)
    assert_same(inside, outside)


@pytest.mark.parametrize("around", [nn.jit, nn.remat])
def test_flaxs_own_jit_inside_of_a_model_follows_the_mode(around):
    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            return around(Mode)(name="mode")(x)

    model = Net().init_bind(0, X)
    for _ in range(2):
        assert model(X)[0, 0] == 1
        assert model.eval()(X)[0, 0] == 2


def test_a_jitted_function_inside_of_a_model_never_replays_the_other_mode():
    modes = []

    @jax.jit
    def layer(x):
        modes.append("traced")
        return Mode().apply({}, x)

    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            return layer(x)

    model = Net().init_bind(0, X)
    for _ in range(2):
        assert model.eval()(X)[0, 0] == 2
        assert model(X)[0, 0] == 1
    assert len(modes) == 2


def test_in_plain_flax_the_mode_is_the_train_property_or_training():
    class Outer(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x):
            return self.inner(x)

    for module in (Mode(), Outer(Mode())):
        assert module.apply({}, X)[0, 0] == 1
        assert module.apply({}, X, is_training_property=False)[0, 0] == 2
        assert module.apply({}, X, is_training_property=True)[0, 0] == 1
        with kd.nn.set_train_property(False):
            assert module.apply({}, X)[0, 0] == 2


def test_kd_nn_follows_the_model():
    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            return kd.nn.Dropout(0.5)(Dense(8)(x))

    model = Net().init_bind(0, X).with_rng(0)
    dense = Dense(8).apply({"params": model.params["Dense_0"]}, X)
    assert_same(model.eval()(X), dense)
    assert differ(model(X), dense)
    by_flax = model.apply(
        model.variables, X, rngs=model.rngs, is_training_property=True
    )
    assert_same(model(X), by_flax)


def test_set_train_property_inside_a_model_reaches_klinen_sub_modules():
    class Net(knn.Module):
        inner: nn.Module

        def __call__(self, x):
            with kd.nn.set_train_property(False):
                frozen = self.inner(x)
            return frozen, self.inner(x), self.training

    frozen, normal, training = Net(Mode()).init_bind(0, X)(X)
    assert (frozen[0, 0], normal[0, 0], training) == (2, 1, True)


def test_outside_of_calls_the_mode_of_kd_nn_is_untouched():
    class Probe(nn.Module):
        is_training = kd.nn.train_property()

        def __call__(self):
            return self.is_training

    model = Mode().init_bind(0, X)
    model.eval()(X)
    with pytest.raises(ValueError, match="is_training_property"):
        Probe().apply({})
    with kd.nn.set_train_property(True):
        assert model.eval()(X)[0, 0] == 2
        assert Probe().apply({}) is True


def test_an_exception_in_a_call_leaves_the_mode_alone():
    class Bad(knn.Module):
        @nn.compact
        def __call__(self, x):
            if not self.training:
                raise RuntimeError("on purpose")
            return x

    model = Bad().init_bind(0, X)
    with pytest.raises(RuntimeError, match="on purpose"):
        model.eval()(X)
    assert_same(model(X), X)
    assert Mode().apply({}, X)[0, 0] == 1


def test_train_and_eval_parts_in_one_program():
    model = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(0, X).with_rng(0)

    @jax.jit
    def both(model, x):
        return model.encoder(x), model.eval().encoder(x), model.encoder(x)

    train, evaluated, again = both(model, X)
    assert_same(train, again)
    assert differ(train, evaluated)
    assert jnp.allclose(evaluated, model.eval().encoder(X), atol=1e-5)
