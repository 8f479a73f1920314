"""Models as plain flax modules: compiled, in lifted transforms and in the trainer."""

import dataclasses
import pathlib
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import unfreeze

from kauldron import kd, kontext, writers
from kauldron import klinen as knn
from tests.klinen.toy import MLP, AutoEncoder, Dense, X, assert_close, assert_same
from tests.train.toy import make_arrays, make_ds, make_trainer

#
# What a call compiles to
#


class Plain(nn.Module):
    """The auto-encoder without klinen."""

    @nn.compact
    def __call__(self, x, train):
        for name in ("encoder", "decoder"):
            x = PlainMLP(name=name)(x, train)
        return x


class PlainMLP(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(Dense(8)(x))
        x = nn.Dropout(0.5)(x, deterministic=not train)
        return Dense(8)(x)


def _program(fn, *args):
    """Instructions without their names and the source lines they come from."""
    text = jax.jit(fn).lower(*args).compile().as_text()
    text = re.sub(r", metadata={[^}]*}", "", text)
    text = re.sub(r"%[\w.-]+", "%", text)
    return sorted(line.strip() for line in text.splitlines() if " = " in line)


@pytest.mark.parametrize("train", [True, False])
def test_a_bound_call_compiles_to_what_apply_compiles_to(train):
    key = jax.random.PRNGKey(0)
    model = AutoEncoder(encoder=MLP(), decoder=MLP()).init_bind(key, X)
    model = model if train else model.eval()

    def bound(params, key, x):
        return model.with_params(params).with_rng({"dropout": key})(x)

    def plain(params, key, x):
        return Plain().apply({"params": params}, x, train, rngs={"dropout": key})

    ours = _program(bound, model.params, key, X)
    assert len(ours) > 10
    assert ours == _program(plain, model.params, key, X)


def test_a_model_as_argument_adds_nothing_when_it_has_no_keys():
    model = knn.Dense(8).init_bind(0, X)
    ours = _program(lambda model, x: model(x), model, X)
    plain = _program(lambda p, x: Dense(8).apply({"params": p}, x), model.params, X)
    assert ours == plain


#
# Lifted transforms
#


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
    bound = jax.jit(raw.init_bind)(key, X)
    expected = jax.eval_shape(raw.init, key, X)["params"]
    shapes = jax.tree.map(jnp.shape, unfreeze(bound.params))
    assert shapes == jax.tree.map(jnp.shape, expected)

    def loss(model, x):
        y, _ = model(x)
        return y.sum(), y

    @jax.jit
    def run(bound, x):
        return raw.apply(bound.variables, x)[0], jax.grad(loss, has_aux=True)(bound, x)

    y, (grads, output) = run(bound, X)
    assert_close(output, y)
    assert jax.tree.structure(grads) == jax.tree.structure(bound)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_inside_of_a_klinen_module(transform):
    class Net(knn.Module):
        @nn.compact
        def __call__(self, x):
            y, _ = transform(Block)(x)
            return Dense(8)(y)

    @jax.jit
    def run(x):
        model = Net().init_bind(0, x)
        return model(x), Net().apply(model.variables, x)

    assert_same(*run(X))


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

    def run(transform):
        model = jax.jit(transform(Storing).init_bind)(jax.random.PRNGKey(0), X)
        return model.call_with_intermediate(X)

    _, stored = run(_remat)
    assert stored.last.shape == X.shape
    _, stored = run(_scan)
    assert stored.last.shape == (3, *X.shape)
    (y, _), stored = run(_vmap)
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
    assert np.isfinite(model(teacher, X)).all()


#
# In the trainer
#


class Encoder(knn.Module):
    """Layers whose outputs are kept, and dropout that follows the mode."""

    childs: list
    outputs: knn.Intermediate[list] = dataclasses.field(
        init=False, default_factory=list
    )

    def __call__(self, x):
        for child in self.childs:
            x = child(x)
            self.outputs.append(x)
        return x


class Regressor(knn.Module):
    """A klinen model with keys for its inputs."""

    encoder: nn.Module
    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        modes.append(self.training)
        return {"y": nn.Dense(2, name="dense")(self.encoder(x))}


modes: list[bool] = []


def _model():
    return Regressor(
        encoder=Encoder([knn.Dropout(0.25), Dense(8), kd.nn.Dropout(0.25)]),
        x="batch.x",
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trainer = make_trainer(
        tmp_path_factory.mktemp("run"),
        model=_model(),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=10),
        train_summaries={},
        log_metrics_every=1,
        train_metrics={
            "norm": kd.metrics.Norm(tensor="interms.encoder.outputs[1]"),
        },
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.EveryNSteps(5), ds=make_ds(shuffle=False, num_epochs=1)
            )
        },
    )
    modes.clear()
    state, _ = trainer.train()
    return trainer, state


def test_it_trains_and_evaluates_in_the_right_mode(trained):
    _, state = trained
    assert int(state.step) == 10
    assert set(modes) == {True, False}


def test_its_intermediate_fields_are_in_the_context(trained):
    trainer, _ = trained
    lines = list(writers.read_scalars(pathlib.Path(trainer.workdir) / "train"))
    norms = [v for line in lines for k, v in line["values"].items() if "norm" in k]
    assert len(norms) >= 2
    assert np.isfinite(norms).all() and min(norms) > 0


def test_its_weights_can_be_bound(trained):
    _, state = trained
    params = jax.device_get(state.params)
    arrays = make_arrays()
    fresh = jax.jit(lambda x: _model().init_bind(0, x))(arrays["x"])
    bound = fresh.with_params(params)
    call = jax.jit(lambda model: model.eval()(arrays["x"])["y"])
    error, error_before = (
        np.mean((np.asarray(call(model)) - arrays["y"]) ** 2)
        for model in (bound, fresh)
    )
    assert error < error_before
    assert bound.encoder.childs[1].params["kernel"].shape == (4, 8)
