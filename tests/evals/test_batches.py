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
from kauldron.evals.state_merging import MergePlan, StateMerger
from kauldron.train import AuxiliariesState
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
                lambda cls, evaluator, state, ds, **kwargs: cls(
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


#
# States of many batches into one: on the device, or collected on the host
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Gather(metrics.Metric):
    """Collects all values, or the first ones."""

    limit: int | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(metrics.AutoState):
        values: Any = metrics.truncate_field(num_field="parent.limit")

        def compute(self):
            return np.asarray(self.values)

    def get_state(self, values):
        return self.State(values=values)


@flax.struct.dataclass
class GrowingState(metrics.State):
    """Merges inside jit, but becomes larger each time."""

    values: Any

    @classmethod
    def empty(cls):
        return cls(jnp.zeros((0,)))

    def merge(self, other):
        return self.replace(values=jnp.concatenate([self.values, other.values]))

    def compute(self):
        return np.asarray(self.values)


def states_of(batch, limit=None):
    return AuxiliariesState(
        loss_states={"mean": metrics.AverageState.from_values(batch)},
        metric_states={"all": Gather(limit=limit).get_state(batch)},
        summary_states=None,
    )


def merge(batches, **kwargs):
    merger = StateMerger()
    for batch in batches:
        merger.add(states_of(jnp.asarray(batch), **kwargs))
    return merger.result()


BATCHES = [np.arange(4.0), np.arange(3.0) + 10, np.arange(4.0) + 20, np.arange(4.0)]


def test_merged_states_equal_those_of_all_data_at_once():
    output = merge(BATCHES).compute(flatten=False)
    everything = np.concatenate(BATCHES)
    assert output.loss_values["mean"] == pytest.approx(everything.mean())
    np.testing.assert_array_equal(output.metric_values["all"], everything)


def test_no_batch_gives_nothing():
    assert StateMerger().result() is None


def test_result_can_be_asked_for_in_between():
    merger = StateMerger()
    for count, batch in enumerate(BATCHES, 1):
        merger.add(states_of(jnp.asarray(batch)))
        gathered = merger.result().compute(flatten=False).metric_values["all"]
        np.testing.assert_array_equal(gathered, np.concatenate(BATCHES[:count]))


def test_collected_arrays_leave_the_device():
    merged = merge(BATCHES)
    assert all(
        isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(merged.metric_states)
    )
    assert all(
        isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(merged.loss_states)
    )


def test_what_is_full_takes_no_more_copies(monkeypatch):
    copies = []
    copied = type(jnp.zeros(1)).copy_to_host_async
    monkeypatch.setattr(
        type(jnp.zeros(1)),
        "copy_to_host_async",
        lambda self: (copies.append(self), copied(self))[1],
    )
    for count in (2, 20):
        copies.clear()
        merged = merge([np.arange(4.0)] * count, limit=3)
        assert len(copies) <= 2
    np.testing.assert_array_equal(
        merged.compute(flatten=False).metric_values["all"], [0, 1, 2]
    )


def test_states_that_grow_are_merged_on_the_host():
    states = AuxiliariesState(metric_states={"g": GrowingState(jnp.ones(2))})
    device, host = MergePlan(states).split(states)
    assert not device and list(host) == ["metric_states/g"]


def test_states_of_different_metrics_are_named_in_the_error():
    merger = StateMerger()
    merger.add(states_of(jnp.zeros(2), limit=1))
    with pytest.raises(
        ValueError, match=r"Merging metric_states/all: .*different metrics"
    ):
        merger.add(states_of(jnp.zeros(2), limit=2))


def count_waits(monkeypatch):
    """Counts the calls that bring an array of jax to the host, or wait for it."""
    waits = []

    def spy_on(owner, name):
        original = getattr(owner, name)

        def spy(*args, **kwargs):
            waits.extend(x for x in args[:1] if isinstance(x, jax.Array))
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, spy)

    for name in ("asarray", "array", "ascontiguousarray"):
        spy_on(np, name)
    for name in ("__array__", "__float__", "__int__", "__bool__", "block_until_ready"):
        spy_on(type(jnp.zeros(1)), name)
    spy_on(jax, "device_get")
    spy_on(jax, "block_until_ready")
    return waits


def test_the_host_waits_for_the_device_equally_often_for_few_and_for_many_batches(
    tmp_path, monkeypatch
):
    waits = count_waits(monkeypatch)
    counts = []
    evals = {"e": kd.evals.Evaluator(run=kd.evals.Once(0))}
    for batch_size in (32, 4):
        ds = make_ds(shuffle=False, num_epochs=1, batch_size=batch_size)
        trainer = make_trainer(tmp_path, eval_ds=ds, evals=evals)
        state = trainer.init_state()
        trainer.evals["e"].evaluate(state, 0)
        waits.clear()
        trainer.evals["e"].evaluate(state, 1)
        counts.append(len(waits))
    assert counts[0] == counts[1] > 0


def test_what_merges_where_is_found_out_once(tmp_path, monkeypatch):
    plans = []
    made = MergePlan.__init__
    monkeypatch.setattr(
        MergePlan, "__init__", lambda self, aux: (plans.append(1), made(self, aux))[1]
    )
    evals = {"e": kd.evals.Evaluator(run=kd.evals.Once(0), num_batches=3)}
    trainer = make_trainer(tmp_path, eval_ds=make_ds(), evals=evals)
    for step in range(3):
        trainer.evals["e"].evaluate(trainer.init_state(), step)
    assert len(plans) == 1
