"""The namespace that keys look into."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from tests.train.toy import make_trainer

FIELDS = [
    "step",
    "batch",
    "params",
    "collections",
    "preds",
    "interms",
    "loss_states",
    "loss_total",
    "grads",
    "updates",
    "opt_state",
    "metric_states",
    "summary_states",
]


def test_fields_are_thirteen_in_this_order():
    fields = dataclasses.fields(kd.train.Context)
    assert [field.name for field in fields] == FIELDS


def test_fields_can_be_given_by_position():
    context = kd.train.Context(*range(13))
    assert [getattr(context, name) for name in FIELDS] == list(range(13))


def test_only_step_and_batch_are_required():
    context = kd.train.Context(step=0, batch={})
    assert all(getattr(context, name) is None for name in FIELDS[2:])
    for missing in ({}, {"step": 0}, {"batch": {}}):
        with pytest.raises(TypeError):
            kd.train.Context(**missing)


def test_context_cannot_be_changed_only_replaced():
    context = kd.train.Context(step=0, batch={"x": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.step = 1
    changed = context.replace(preds=3)
    assert changed.preds == 3 and context.preds is None
    with pytest.raises(TypeError, match="predictions"):
        context.replace(predictions=3)


def test_context_is_a_tree():
    context = kd.train.Context(step=0, batch={"x": 1}, params=None)
    assert jax.tree.leaves(context) == [0, 1]
    assert jax.tree.map(lambda x: x + 1, context).batch == {"x": 2}


def test_begins_with_what_the_state_has():
    state = kd.train.TrainState(
        step=3, params={"w": 1}, collections={"c": 2}, opt_state=(4,)
    )
    context = kd.train.Context.from_state_and_batch(state=state, batch={"x": 0})
    filled = {name: getattr(context, name) for name in FIELDS}
    assert {name: value for name, value in filled.items() if value is not None} == {
        "step": 3,
        "batch": {"x": 0},
        "params": {"w": 1},
        "collections": {"c": 2},
        "opt_state": (4,),
    }


def test_flatten_gives_dotted_paths_and_leaves_out_what_is_empty():
    params = {"dense": {"kernel": jnp.ones(2)}}
    context = kd.train.Context(
        step=7,
        batch={"image": 1, "nested": [2, 3]},
        opt_state=optax.adam(1.0).init(params),
        interms={"encoder": {"__call__": (5,)}},
    )
    flat = context.flatten()
    assert flat["step"] == 7 and flat["batch.image"] == 1
    assert flat["batch.nested[1]"] == 3
    assert flat["opt_state[0].count"] == 0
    assert flat["opt_state[0].mu.dense.kernel"].shape == (2,)
    assert flat["interms.encoder.__call__[0]"] == 5
    assert not any(path.startswith("preds") for path in flat)


def test_states_that_are_not_asked_for_are_none():
    context = kd.train.Context(
        step=0,
        batch={},
        loss_states={"a": 1},
        metric_states={"b": 2},
        summary_states={},
    )
    nothing = context.get_aux_state()
    assert nothing == kd.train.AuxiliariesState(
        loss_states=None, metric_states=None, summary_states=None
    )
    some = context.get_aux_state(return_losses=True, return_summaries=True)
    assert some.loss_states == {"a": 1} and some.summary_states == {}
    assert some.metric_states is None and some.error is None


def test_key_of_a_field_that_is_filled_later_says_when():
    context = kd.train.Context(step=0, batch={})
    norm = kd.metrics.Norm(tensor="grads.w")
    with pytest.raises(KeyError, match="only in train steps, after the backward pass"):
        kontext.resolve_from_keyed_obj(context, norm)


class ContextWithNoise(kd.train.Context):
    """One more field, and so one more beginning of keys."""

    noise: object = None


class NoisyStep(kd.train.TrainStep):
    """Adds a field to the context."""

    def _step(self, state, batch):
        state, context = super()._step(state, batch)
        fields = {
            field.name: getattr(context, field.name)
            for field in dataclasses.fields(context)
        }
        context = ContextWithNoise(**fields, noise={"size": jnp.float32(2.5)})
        return state, self.aux.update_context(context)


class TolerantMetrics(kd.train.Auxiliaries):
    """Waits for the field that the step adds."""

    def update_context(self, context):
        if not isinstance(context, ContextWithNoise):
            return context
        return super().update_context(context)


def test_field_of_a_subclass_is_read_by_keys(tmp_path):
    trainer = make_trainer(
        tmp_path,
        trainstep=NoisyStep(aux=TolerantMetrics()),
        train_metrics={"noise": kd.metrics.Norm(tensor="noise.size", axis=None)},
        checkpointer=None,
    )
    assert "noise.size" in trainer.context_specs.flatten()
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    _, aux = trainer.trainstep.step(
        trainer.init_state(), batch, return_metrics=True, return_losses=True
    )
    values = aux.compute()
    np.testing.assert_allclose(values.metric_values["metrics/noise"], 2.5)
    assert set(values.loss_values) == {"losses/l2", "losses/total"}
