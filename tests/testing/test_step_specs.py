"""A train step checked by shapes alone."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import data, evals, kd, kontext, train


class Model(nn.Module):
    """A linear model with dropout that stores an intermediate value."""

    x: kontext.Key = "batch.x"
    interms = kd.nn.interms_property()

    @nn.compact
    def __call__(self, x):
        self.interms["hidden"] = nn.Dense(3, name="hidden_layer")(x)
        return nn.Dense(1)(kd.nn.Dropout(0.5)(self.interms["hidden"]))


def make_trainer(**kwargs):
    def load():
        return {"x": np.ones((16, 4), np.float32), "y": np.ones((16, 1), np.float32)}

    ds = data.InMemoryPipeline(loader=load, batch_size=8)
    defaults = {
        "train_ds": ds,
        "eval_ds": ds,
        "model": Model(),
        "optimizer": optax.adam(1e-3),
        "train_losses": {"l2": kd.losses.L2(preds="preds", targets="batch.y")},
        "num_train_steps": 3,
    }
    return train.Trainer(**defaults | kwargs)


def test_good_trainer_gives_the_context():
    context = kd.testing.assert_step_specs(make_trainer())
    assert isinstance(context, train.Context)
    assert context.preds == jax.ShapeDtypeStruct((8, 1), jnp.float32)
    hidden = kontext.get_by_path(context, "interms.hidden[0]")
    assert hidden.shape == (8, 3)
    assert context.grads["hidden_layer"]["kernel"].shape == (4, 3)


def test_nothing_is_computed_or_written(tmp_path):
    compiled = []

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    trainer = make_trainer(workdir=tmp_path / "run")
    trainer.train_ds.element_spec
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        kd.testing.assert_step_specs(trainer)
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiled == []
    assert not (tmp_path / "run").exists()


def test_key_of_a_loss_that_does_not_exist():
    losses = {"l2": kd.losses.L2(preds="preds.nope", targets="batch.y")}
    with pytest.raises(KeyError, match="nope"):
        kd.testing.assert_step_specs(make_trainer(train_losses=losses))


def test_key_of_a_metric_that_does_not_exist():
    metrics = {"norm": kd.metrics.Norm(tensor="batch.nope")}
    with pytest.raises(KeyError, match="nope"):
        kd.testing.assert_step_specs(make_trainer(train_metrics=metrics))


def test_wrong_shape():
    class Wrong(nn.Module):
        x: kontext.Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            return nn.Dense(7)(x).reshape(7, -1)

    with pytest.raises(Exception, match=r"7"):
        kd.testing.assert_step_specs(make_trainer(model=Wrong()))


def test_unknown_sizes_are_filled_in():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unknown(data.InMemoryPipeline):
        @property
        def element_spec(self):
            spec = super().element_spec
            return {
                name: dataclasses.replace(leaf, shape=(None, *leaf.shape[1:]))
                if dataclasses.is_dataclass(leaf)
                else leaf
                for name, leaf in spec.items()
            }

    trainer = make_trainer()
    ds = Unknown(loader=trainer.train_ds.loader, batch_size=8)
    context = kd.testing.assert_step_specs(trainer.replace(train_ds=ds))
    assert context.preds.shape == (jax.device_count(), 1)


def test_steps_of_evaluators_are_checked_when_asked_for():
    evaluators = {
        "good": evals.Evaluator(run=evals.EveryNSteps(1)),
        "bad": evals.Evaluator(
            run=evals.EveryNSteps(1),
            metrics={"norm": kd.metrics.Norm(tensor="batch.nope")},
        ),
    }
    good = make_trainer(evals={"good": evaluators["good"]})
    kd.testing.assert_step_specs(good, evals=True)
    bad = make_trainer(evals=evaluators)
    kd.testing.assert_step_specs(bad)
    with pytest.raises(KeyError, match=r"(?s)Evaluator bad: .*nope"):
        kd.testing.assert_step_specs(bad, evals=True)
