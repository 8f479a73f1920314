"""Several batches in one compiled call measure what one by one measures."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd, kontext, metrics
from kauldron.evals.batches import BatchGroups
from tests.train.toy import make_arrays, make_ds, make_trainer

ALL = {"shuffle": False, "num_epochs": 1}
EVEN = {"ds": make_ds(**ALL, batch_size=8)}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class AnyNegative(metrics.Metric):
    """Counts batches with negative values: a bool becomes a number when merged."""

    tensor: kontext.Key = kontext.REQUIRED

    @flax.struct.dataclass(kw_only=True)
    class State(metrics.AutoState):
        found: Any = metrics.sum_field()

        def compute(self):
            return float(self.found)

    def get_state(self, tensor):
        return self.State(found=(tensor < 0).any())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Generated(kd.data.Pipeline):
    """Data of unknown length."""

    def __iter__(self):
        arrays = make_arrays()
        for start in range(0, 64, 8):
            yield {name: array[start : start + 8] for name, array in arrays.items()}


class OneByOne(kd.evals.Evaluator):
    """Looks at each batch."""

    def checked_step(self, index, state, batch):
        return super().checked_step(index, state, batch)


MEASURED = {
    "metrics": {
        "norm": kd.metrics.Norm(tensor="preds.y"),
    },
    "summaries": {
        "all": kd.summaries.HistogramSummary(tensor="preds.y"),
        "first": kd.summaries.HistogramSummary(tensor="batch.y", max_values=9),
    },
}


def evaluate(tmp_path, cls, **kwargs):
    evaluator = cls(run=kd.evals.Once(0), **{**MEASURED, **kwargs})
    trainer = make_trainer(tmp_path, evals={"e": evaluator})
    state = trainer.init_state()
    output = trainer.evals["e"].evaluate(state, 0).compute()
    again = trainer.evals["e"].evaluate(state, 1).compute()
    jax.tree.map(
        np.testing.assert_array_equal, output.metric_values, again.metric_values
    )
    numbers = {**output.loss_values, **output.metric_values}
    return numbers, {k: v.tensor for k, v in output.summary_values.items()}


@pytest.fixture
def group(monkeypatch):
    """Groups of a size, as on an accelerator."""

    def set_size(size):
        monkeypatch.setattr(
            BatchGroups,
            "of",
            classmethod(
                lambda cls, evaluator, state, **kwargs: cls(
                    size=size, sharding=kd.sharding.FIRST_DIM, **kwargs
                )
            ),
        )

    return set_size


@pytest.mark.parametrize(
    "data",
    [
        EVEN,
        {"ds": make_ds(**ALL, batch_size=7, batch_drop_remainder=False)},
        {"ds": make_ds(num_epochs=None, batch_size=8), "num_batches": 7},
        {"ds": Generated()},
        {"ds": Generated(), "num_batches": 5},
        {"ds": make_ds(**ALL, batch_size=8), "num_batches": 5, "cache": True},
    ],
    ids=["even", "smaller_last", "endless", "unknown", "unknown_part", "cached"],
)
def test_groups_of_any_size_give_the_values_of_single_batches(tmp_path, group, data):
    expected = evaluate(tmp_path, OneByOne, **data)
    for size in (3, 20) if data == EVEN else (3,):
        group(size)
        values, arrays = evaluate(tmp_path, kd.evals.Evaluator, **data)
        assert values == pytest.approx(expected[0], rel=1e-5)
        for name, array in arrays.items():
            np.testing.assert_allclose(array, expected[1][name], rtol=1e-5)


def test_states_that_change_their_type_when_merged_are_counted_right(tmp_path, group):
    changing = {"metrics": {"negative": AnyNegative(tensor="preds.y")}}
    ds = make_ds(**ALL, batch_size=8)
    expected = evaluate(tmp_path, OneByOne, ds=ds, **changing)
    for size in (1, 3):
        group(size)
        values, _ = evaluate(tmp_path, kd.evals.Evaluator, ds=ds, **changing)
        assert values == pytest.approx(expected[0], rel=1e-5)
    assert expected[0]["metrics/negative"] == 8


def test_indices_of_batches_go_on_across_groups(tmp_path, group):
    group(3)
    seen = []

    class Recording(kd.evals.Evaluator):
        def _step(self, step_nr, state, batch):
            jax.debug.callback(lambda index: seen.append(int(index)), step_nr)
            return super()._step(step_nr, state, batch)

    evaluate(tmp_path, Recording, ds=make_ds(**ALL, batch_size=8))
    jax.effects_barrier()
    assert sorted(seen) == sorted([*range(8), *range(8)])


def test_step_is_compiled_once(tmp_path):
    compiled = []

    def on_event(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(kwargs.get("fun_name"))

    evals = {"e": kd.evals.Evaluator(run=kd.evals.Once(0))}
    trainer = make_trainer(tmp_path, eval_ds=make_ds(**ALL), evals=evals)
    state = trainer.init_state()
    jax.block_until_ready(jnp.zeros(()))
    jax.monitoring.register_event_duration_secs_listener(on_event)
    try:
        for step in range(3):
            trainer.evals["e"].evaluate(state, step)
    finally:
        jax.monitoring.clear_event_listeners()
    assert len(compiled) == 1
