"""NNX modules inside models of linen."""

import functools

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from flax import nnx

from kauldron import kd, writers
from tests.contrib.nn.nnx_models import Block

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
linen_from_nnx = kd.contrib.nn.linen_from_nnx


class Tied(nnx.Module):
    """An autoencoder around any module."""

    def __init__(self, inner, sizes, *, rngs):
        self.inner = inner
        self.others = nnx.List(sizes["list"])
        self.out = nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        return self.decode(self.encode(x))

    def encode(self, x):
        return self.inner(x)

    def decode(self, h):
        return self.out(h)


def _tied():
    return linen_from_nnx(
        Tied,
        linen_from_nnx(nnx.Linear, 4, 3),
        sizes={"list": [linen_from_nnx(nnx.Linear, 2, 2)]},
    )


def test_class_parameters_and_values_are_those_of_nnx():
    model = linen_from_nnx(nnx.Linear, in_features=4, out_features=3)
    assert type(model).__name__ == "LinenFromNnxLinear"
    assert type(model) is type(linen_from_nnx(nnx.Linear, 1, 1))
    variables = model.init(jax.random.key(0), X)
    params = variables["params"]
    assert set(params) == {"kernel", "bias"}
    np.testing.assert_allclose(
        model.apply(variables, inputs=X),
        X @ params["kernel"][...] + params["bias"][...],
        rtol=1e-6,
    )


def test_mode_streams_and_statistics():
    model = linen_from_nnx(Block, 8)
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    init = functools.partial(model.init, is_training_property=True)
    variables = jax.jit(init)(rngs, X)
    assert set(variables["nnx"]) == {"graphdef", "rng_vars", "attributes"}

    @functools.partial(jax.jit, static_argnames="is_training")
    def run(seed, is_training):
        return model.apply(
            variables,
            X,
            rngs={"dropout": jax.random.key(seed)},
            mutable=["nnx", "intermediates"],
            is_training_property=is_training,
        )

    (first, changed), (second, _) = run(1, True), run(2, True)
    assert not np.array_equal(first, second)
    assert set(changed) == {"nnx", "intermediates"}
    before, after = (
        v["nnx"]["attributes"]["norm"]["mean"][...] for v in (variables, changed)
    )
    assert not np.array_equal(before, after)
    assert len(changed["intermediates"]["hidden"]) == 1
    np.testing.assert_array_equal(run(1, False)[0], run(2, False)[0])


def test_mode_stays_as_stored_when_nobody_says():
    model = linen_from_nnx(nnx.Dropout, 0.5, deterministic=True)
    variables = model.init({"dropout": jax.random.key(0)}, np.ones(50, np.float32))
    np.testing.assert_array_equal(
        model.apply(variables, np.ones(50, np.float32)), np.ones(50, np.float32)
    )


def test_nested_definitions_become_nnx_modules():
    model = _tied()
    variables = model.init(jax.random.key(0), X)
    assert set(variables["params"]) == {"inner", "others", "out"}
    assert model.apply(variables, X).shape == X.shape


def test_methods_are_available_inside_and_from_outside():
    class Outer(nn.Module):
        @nn.compact
        def __call__(self, x):
            tied = _tied()
            return tied.decode(h=2 * tied.encode(x))

    variables = Outer().init(jax.random.key(0), X)
    (name,) = variables["params"]
    inner = {
        collection: variables[collection][name] for collection in ("params", "nnx")
    }
    h = _tied().apply(inner, X, method="encode")
    assert h.shape == (6, 3)
    expected = _tied().apply(inner, 2 * h, method="decode")
    np.testing.assert_allclose(Outer().apply(variables, X), expected, rtol=1e-6)


def test_module_without_random_values_needs_no_streams():
    class Double(nnx.Module):
        def __call__(self, x):
            return 2 * x

    model = linen_from_nnx(Double)
    np.testing.assert_array_equal(model.apply(model.init({}, X), X), 2 * X)


def test_missing_stream_is_named():
    with pytest.raises(ValueError, match="'params'"):
        linen_from_nnx(nnx.Linear, 4, 3).init({"noise": jax.random.key(0)}, X)


def test_wrapped_class_with_keys_trains(tmp_path):
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(4, 8, rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)
            self.out = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.dropout(nnx.relu(self.norm(self.hidden(x)))))

    data = {"x": np.tile(X, (4, 1)), "y": np.tile(X, (4, 1)).sum(1, keepdims=True)}
    trainer = kd.train.Trainer(
        seed=0,
        workdir=str(tmp_path),
        num_train_steps=30,
        log_metrics_every=1,
        train_ds=kd.data.py.Arrays(data, batch_size=8, shuffle=True),
        model=kd.nn.ExternalModule(model=linen_from_nnx(Net), keys="batch.x"),
        train_losses={"l2": kd.losses.L2(preds="preds", targets="batch.y")},
        optimizer=optax.adam(3e-2),
        profiler=None,
    )
    before = trainer.init_state()
    state, _ = trainer.train()
    losses = [
        line["values"]["losses/l2"]
        for line in writers.read_scalars(tmp_path / "train")
        if "losses/l2" in line["values"]
    ]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert set(state.params) == {"hidden", "norm", "out"}
    old, new = (
        s.collections["nnx"]["attributes"]["norm"]["mean"][...] for s in (before, state)
    )
    assert not np.array_equal(old, new)
