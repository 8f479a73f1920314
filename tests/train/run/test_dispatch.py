"""Many steps in one compiled call: the same batches, the same numbers."""

import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import checkify

from kauldron import kd, writers
from kauldron.data.iters import as_iterator
from kauldron.train.run import dispatch
from kauldron.train.run.dispatch import Dispatcher, make_dispatcher
from kauldron.train.run.feed import read_feeds
from kauldron.train.run.step_groups import HostSteps
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer


def _points(workdir, collection="train"):
    """All logged values of a run but its times."""
    return [
        (
            line["step"],
            {
                k: v
                for k, v in line["values"].items()
                if not k.startswith("perf_stats/")
            },
        )
        for line in writers.read_scalars(workdir / collection)
    ]


def _assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def _make(workdir, **changes):
    """With dropout, evaluations and checkpoints at steps that divide nothing."""
    device_resident = changes.pop("device_resident", False)
    kwargs = {
        "model": Linear(x="batch.x", rate=0.3),
        "train_ds": make_ds(device_resident=device_resident),
        "num_train_steps": 40,
        "log_metrics_every": 13,
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=23),
        "eval_ds": make_ds(num_epochs=1),
        "evals": {"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(17))},
    }
    return make_trainer(workdir, **(kwargs | changes))


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory):
    """A run whose every step is a call of its own: workdir and state."""
    workdir = tmp_path_factory.mktemp("one_by_one")
    state, _ = _make(workdir, steps_per_dispatch=1).train()
    return workdir, state


#
# Whole runs. The CPU computes the body of a loop as it computes a single step, with all
# optimizations or with few, so that here the grouping of steps changes no bit; other
# devices round as they like.
#


@pytest.mark.parametrize(
    ("size", "device_resident"),
    [(8, False), (8, True), (1, True), ("auto", False), ("auto", True)],
)
def test_grouping_of_steps_changes_no_bit(
    tmp_path, one_by_one, size, device_resident, monkeypatch
):
    workdir, expected = one_by_one
    monkeypatch.setattr(dispatch, "_MOST_CALLS", 4)  # few are read ahead
    trainer = _make(tmp_path, steps_per_dispatch=size, device_resident=device_resident)
    state, _ = trainer.train()
    _assert_equal(state, expected)
    assert _points(tmp_path) == _points(workdir)
    assert [step for step, _ in _points(tmp_path, "eval")] == [0, 17, 34, 40]
    assert _points(tmp_path, "eval") == _points(workdir, "eval")
    assert trainer.checkpointer.all_steps == [0, 23, 40]


def test_run_resumes_in_the_middle_of_a_chunk(tmp_path, one_by_one):
    workdir, expected = one_by_one
    half = _make(tmp_path, steps_per_dispatch=8, stop_after_steps=21)
    half.train()
    state, _ = half.replace(stop_after_steps=None).train()
    _assert_equal(state, expected)
    steps = [step for step, _ in _points(workdir)]
    assert [step for step, _ in _points(tmp_path) if step != 20] == steps


@pytest.mark.usefixtures("as_for_users")
def test_data_that_ends_in_a_chunk_with_a_smaller_batch(tmp_path):
    changes = {
        "model": Linear(x="batch.x"),
        "num_train_steps": None,
        "stop_after_steps": 99,
        "log_metrics_every": None,
        "checkpointer": None,
        "evals": {},
    }
    arrays = {name: np.tile(x, (2, 1))[:72] for name, x in make_arrays().items()}
    options = {"num_epochs": 1, "batch_size": 16, "batch_drop_remainder": False}
    ds = kd.data.py.Arrays(arrays, shuffle=True, **options)
    states = [
        _make(
            tmp_path / str(size), steps_per_dispatch=size, **changes, train_ds=ds
        ).train()[0]
        for size in (1, 3)
    ]
    assert int(states[0].step) == 5
    _assert_equal(*states)


#
# What a dispatch is made of
#


def _feeds(ds, size, *, resident=False, steps=None):
    trainer = make_trainer(
        "unused", train_ds=ds, log_metrics_every=None, checkpointer=None
    )
    records = kd.data.DeviceRecords.of(trainer.train_ds) if resident else None
    dispatcher = Dispatcher(trainer, HostSteps(trainer, steps), size, records)
    feeds = list(read_feeds(as_iterator(trainer.train_ds), dispatcher, 0))
    return dispatcher, feeds


def _batches(dispatcher, feeds):
    """The single batches of feeds, whatever they are made of."""
    records = dispatcher.records
    gather = jax.jit(records.gather) if records else None
    for feed in feeds:
        batches = jax.tree.map(np.asarray, feed.batch)
        for index in range(feed.size):
            batch = batches
            if feed.size > 1:
                batch = jax.tree.map(lambda leaf: leaf[index], batches)
            if feed.is_rows:
                batch = gather(records.columns, batch)
            yield jax.tree.map(np.asarray, batch)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("batch_size", [10, 12, 16, 21, 32, 64])
def test_feeds_hold_the_batches_of_the_data_in_order(batch_size, resident):
    ds = make_ds(
        num_epochs=2,
        batch_size=batch_size,
        batch_drop_remainder=False,
        seed=0,
        device_resident=resident,
    )
    expected = list(ds)
    dispatcher, feeds = _feeds(ds, 4, resident=resident)
    batches = list(_batches(dispatcher, feeds))
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected):
        _assert_equal(batch, other)
    assert any(feed.size > 1 for feed in feeds)
    assert any(feed.is_rows for feed in feeds) == resident


def test_batches_of_another_library_are_stacked_too():
    class Plain(kd.data.Pipeline):
        """Yields batches, one of them of another shape."""

        def __iter__(self):
            for index in range(7):
                yield {"x": np.full((16 if index != 5 else 8, 4), index, np.float32)}

        def __len__(self):
            return 7

    dispatcher, feeds = _feeds(Plain(batch_size=16), 4)
    assert [feed.size for feed in feeds] == [4, 1, 1, 1]
    values = [batch["x"][0, 0] for batch in _batches(dispatcher, feeds)]
    assert values == list(range(7))


def test_position_after_a_feed_is_that_after_its_batches():
    ds = make_ds(num_epochs=1, batch_size=8, seed=0)
    _, feeds = _feeds(ds, 4)
    expected = list(ds)
    iterator = as_iterator(ds)
    iterator.set_state(feeds[0].position)
    _assert_equal(next(iterator), expected[4])


@given(
    metrics=st.integers(0, 12),
    summaries=st.integers(0, 12),
    evals=st.integers(1, 12),
    saves=st.integers(1, 12),
    last=st.integers(1, 60),
    size=st.integers(1, 20),
)
def test_no_dispatch_passes_a_step_at_which_the_host_looks(
    metrics, summaries, evals, saves, last, size
):
    trainer = make_trainer(
        "unused",
        log_metrics_every=metrics,
        log_summaries_every=summaries,
        eval_ds=make_ds(num_epochs=1),
        evals={"e": kd.evals.Evaluator(run=kd.evals.EveryNSteps(evals))},
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=saves),
    )
    host_steps = HostSteps(trainer, last)
    dispatcher = Dispatcher(trainer, host_steps, size)
    step = 0
    while step < last:
        count = dispatcher.size_at(step)
        assert count in (1, size)
        assert count == 1 or not any(
            host_steps.logs(i) for i in range(step, step + count)
        )
        for inside in range(step + 1, step + count):
            assert inside % evals
            assert inside % saves
        step += count
    assert step == last


#
# When every step is a call of its own
#


class LoggingStep(kd.train.TrainStep):
    """Overrides `step` itself."""

    def step(self, state, batch, **kwargs):
        return super().step(state, batch, **kwargs)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trainstep": LoggingStep()}, "LoggingStep overrides `step`"),
        ({"checkify_error_categories": checkify.float_checks}, "checkify looks at"),
    ],
)
def test_steps_that_the_host_must_see_are_not_grouped(
    tmp_path, caplog, changes, reason
):
    trainer = make_trainer(tmp_path, steps_per_dispatch=8, **changes)
    with caplog.at_level("INFO", logger="kauldron"):
        dispatcher = make_dispatcher(trainer, HostSteps(trainer, 10))
    assert dispatcher.size == 1
    assert f"steps_per_dispatch=8 is not used: {reason}" in caplog.text


def test_debugging_modes_of_jax_are_not_grouped(tmp_path):
    trainer = make_trainer(tmp_path, steps_per_dispatch=8)
    with jax.debug_nans(True):
        assert make_dispatcher(trainer, HostSteps(trainer, 10)).size == 1


@pytest.mark.parametrize(
    ("wanted", "size"), [(1, 1), (2, 2), (8, 8), (10, 9), (64, 49), (1024, 99)]
)
def test_groups_share_the_steps_between_two_logs(tmp_path, wanted, size):
    trainer = make_trainer(
        tmp_path, steps_per_dispatch=wanted, log_metrics_every=100, checkpointer=None
    )
    assert make_dispatcher(trainer, HostSteps(trainer, 1001)).size == size


def test_on_a_cpu_short_steps_are_calls_in_a_row(tmp_path):
    trainer = make_trainer(tmp_path, log_metrics_every=10, checkpointer=None)
    dispatcher = make_dispatcher(trainer, HostSteps(trainer, 100))
    assert dispatcher.in_calls
    assert dispatcher.size_at(1) == 1  # how long they take is not known yet
    dispatcher.speed = 1 / 0.012
    assert [dispatcher.size_at(step) for step in (0, 1, 8, 10, 95, 98)] == [
        *(1, 4, 2, 1, 4, 1)
    ]
    dispatcher.speed = 1 / 30.0
    assert dispatcher.size_at(1) == 1


def test_calls_in_a_row_bring_their_batches_themselves(tmp_path):
    """They are those of the data, and one of another shape is among them."""
    ds = make_ds(num_epochs=1, batch_size=10, batch_drop_remainder=False, seed=0)
    trainer = make_trainer(
        tmp_path, train_ds=ds, log_metrics_every=None, checkpointer=None
    )
    dispatcher = make_dispatcher(trainer, HostSteps(trainer, None))
    dispatcher.speed = 1 / 0.01
    feeds = list(read_feeds(as_iterator(ds), dispatcher, 0))
    assert [feed.size for feed in feeds] == [5, 2]
    batches = [batch for feed in feeds for batch in feed.batch]
    _assert_equal(batches, list(ds))
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(batches))
    state = trainer.init_state()
    for step, feed in zip((0, 5), feeds):
        state, *_ = dispatcher.run(state, feed, step)
    assert int(state.step) == 7 and dispatcher.step == 6


def test_batches_of_another_library_are_put_on_the_device_at_once(tmp_path):
    """It may use their memory for the next one."""

    class Plain(kd.data.Pipeline):
        def __iter__(self):
            yield from ({"x": np.full((16, 4), index)} for index in range(6))

        def __len__(self):
            return 6

    trainer = make_trainer(
        tmp_path,
        train_ds=Plain(batch_size=16),
        log_metrics_every=None,
        checkpointer=None,
    )
    dispatcher = make_dispatcher(trainer, HostSteps(trainer, None))
    dispatcher.speed = 1 / 0.01
    feeds = list(read_feeds(as_iterator(trainer.train_ds), dispatcher, 0))
    assert [feed.size for feed in feeds] == [5, 1]
    batches = [*feeds[0].batch, feeds[1].batch]
    assert all(isinstance(batch["x"], jax.Array) for batch in batches)
    assert [int(batch["x"][0, 0]) for batch in batches] == list(range(6))


#
# Programs
#


def _step_programs(caplog, trainer):
    """Names of the programs of steps that a run compiles."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        trainer.train()
    found = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    return sorted(name for name in found if name in ("step", "run_step", "run_group"))


_SUMMARIES = {
    "train_summaries": {
        "grads": kd.summaries.HistogramSummary(tensor="grads.dense.kernel")
    }
}


@pytest.mark.parametrize(
    ("changes", "programs"),
    [
        ({"log_metrics_every": 1}, 1),
        ({"log_metrics_every": None}, 1),
        ({"log_metrics_every": 4}, 2),
        ({"log_metrics_every": 4, "log_summaries_every": 8} | _SUMMARIES, 2),
        ({"log_metrics_every": 8, "log_summaries_every": 8} | _SUMMARIES, 2),
        ({"log_metrics_every": 8, "steps_per_dispatch": 64}, 2),
        ({"log_metrics_every": None, "steps_per_dispatch": 64}, 1),
    ],
)
def test_few_programs_are_compiled(tmp_path, caplog, changes, programs):
    changes = {"num_train_steps": 24, "checkpointer": None} | changes
    trainer = make_trainer(tmp_path, shares_step=False, **changes)
    assert len(_step_programs(caplog, trainer)) == programs


def test_summaries_are_returned_only_by_steps_that_log_them(tmp_path):
    trainer = make_trainer(
        tmp_path,
        num_train_steps=9,
        log_metrics_every=2,
        log_summaries_every=4,
        checkpointer=None,
        **_SUMMARIES,
    )
    dispatcher = make_dispatcher(trainer, HostSteps(trainer, 9))
    returned = {}
    state, feeds = (
        trainer.init_state(),
        read_feeds(as_iterator(trainer.train_ds), dispatcher, 0),
    )
    for step, feed in zip(range(9), feeds):
        state, aux, _ = dispatcher.run(state, feed, step)
        returned[step] = bool(jax.tree.leaves(aux.summary_states))
    assert [step for step, there in returned.items() if there] == [0, 4, 8]


def test_without_summaries_nothing_is_logged_at_their_steps(tmp_path):
    make_trainer(
        tmp_path,
        num_train_steps=9,
        log_metrics_every=5,
        log_summaries_every=2,
        checkpointer=None,
    ).train()
    assert sorted({step for step, _ in _points(tmp_path)}) == [0, 5, 8]


def test_step_that_does_not_count_is_named_before_it_is_saved(tmp_path):
    class Forgetful(kd.train.TrainStep):
        def _step(self, state, batch):
            new_state, context = super()._step(state, batch)
            return new_state.replace(step=state.step), context

    trainer = make_trainer(tmp_path, trainstep=Forgetful(), writer=None)
    with pytest.raises(ValueError, match=r"0 updates.*were 4: does Forgetful._step"):
        trainer.train()
