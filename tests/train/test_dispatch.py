"""Many steps in one compiled call: the same batches, the same numbers."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import checkify

from kauldron import kd, writers
from kauldron.data.iters.iterator import as_iterator
from kauldron.train.dispatch import Dispatcher, even_share, make_dispatcher
from kauldron.train.feeds import read_feeds
from kauldron.train.host_steps import HostSteps
from tests.train.toy import Linear, make_ds, make_trainer


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
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=11),
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
# Whole runs. The CPU computes the body of a loop as it computes a single step, so that
# here the grouping of steps changes no bit; other devices round as they like.
#


@pytest.mark.parametrize(
    ("size", "device_resident"), [(8, False), (8, True), (1, True)]
)
def test_grouping_of_steps_changes_no_bit(tmp_path, one_by_one, size, device_resident):
    workdir, expected = one_by_one
    trainer = _make(tmp_path, steps_per_dispatch=size, device_resident=device_resident)
    state, _ = trainer.train()
    _assert_equal(state, expected)
    assert _points(tmp_path) == _points(workdir)
    assert [step for step, _ in _points(tmp_path, "eval")] == [0, 17, 34]
    assert _points(tmp_path, "eval") == _points(workdir, "eval")
    assert trainer.checkpointer.all_steps == [22, 33, 40]


def test_run_resumes_in_the_middle_of_a_chunk(tmp_path, one_by_one):
    workdir, expected = one_by_one
    half = _make(tmp_path, steps_per_dispatch=8, stop_after_steps=21)
    half.train()
    state, _ = half.replace(stop_after_steps=None).train()
    _assert_equal(state, expected)
    steps = [step for step, _ in _points(workdir)]
    assert [step for step, _ in _points(tmp_path) if step != 20] == steps


def test_data_that_ends_in_a_chunk_with_a_smaller_batch(tmp_path):
    changes = {
        "num_train_steps": None,
        "stop_after_steps": 99,
        "log_metrics_every": None,
        "checkpointer": None,
        "evals": {},
    }
    ds = make_ds(num_epochs=1, batch_size=10, batch_drop_remainder=False)
    states = [
        _make(
            tmp_path / str(size), steps_per_dispatch=size, **changes, train_ds=ds
        ).train()[0]
        for size in (1, 4)
    ]
    assert int(states[0].step) == 7
    _assert_equal(*states)


#
# What a dispatch is made of
#


def _feeds(ds, size, *, resident=False, steps=None):
    trainer = make_trainer(
        "unused", train_ds=ds, log_metrics_every=None, checkpointer=None
    )
    records = kd.data.DeviceRecords.of(trainer.train_ds) if resident else None
    sizes = (size, 1) if size > 1 else ()
    dispatcher = Dispatcher(trainer, HostSteps(trainer, steps), sizes, records)
    feeds = list(read_feeds(as_iterator(trainer.train_ds), dispatcher, 0))
    return dispatcher, feeds


def _batches(dispatcher, feeds):
    """The single batches of feeds, whatever they are made of."""
    for feed in feeds:
        for index in range(feed.size):
            batch = feed.batch
            if feed.size > 1:
                batch = jax.tree.map(lambda leaf: leaf[index], batch)
            if feed.is_rows:
                batch = dispatcher.records.gather(dispatcher.records.columns, batch)
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
    profiles=st.integers(1, 12),
    size=st.integers(1, 20),
)
def test_no_dispatch_passes_a_step_at_which_the_host_looks(
    metrics, summaries, evals, saves, last, profiles, size
):
    trainer = make_trainer(
        "unused",
        log_metrics_every=metrics,
        log_summaries_every=summaries,
        eval_ds=make_ds(num_epochs=1),
        evals={"e": kd.evals.Evaluator(run=kd.evals.EveryNSteps(evals))},
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=saves),
        profiler=kd.inspect.Profiler(first_profile=profiles, num_profile_steps=2),
    )
    host_steps = HostSteps(trainer, last)
    dispatcher = Dispatcher(trainer, host_steps, (size, 1) if size > 1 else ())
    step = 0
    while step < last:
        count = dispatcher.size_at(step)
        assert 1 <= count <= size
        assert count == 1 or not any(
            host_steps.logs(i) for i in range(step, step + count)
        )
        for inside in range(step + 1, step + count):
            assert inside % evals
            assert inside % saves
            assert inside not in (profiles, profiles + 2)
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
    assert dispatcher.sizes == ()
    assert f"steps_per_dispatch=8 is not used: {reason}" in caplog.text


def test_debugging_modes_of_jax_are_not_grouped(tmp_path):
    trainer = make_trainer(tmp_path, steps_per_dispatch=8)
    with jax.debug_nans(True):
        assert make_dispatcher(trainer, HostSteps(trainer, 10)).sizes == ()


@pytest.mark.parametrize(
    ("wanted", "sizes"),
    [
        (1, ()),
        (2, (2, 1)),
        (8, (8, 4, 2, 1)),
        (10, (10, 5, 2, 1)),
        (64, (64, 16, 4, 1)),
        (1024, (1024, 128, 16, 1)),
    ],
)
def test_at_most_four_programs_are_compiled(tmp_path, wanted, sizes):
    trainer = make_trainer(tmp_path, steps_per_dispatch=wanted)
    assert make_dispatcher(trainer, HostSteps(trainer, 100)).sizes == sizes


@given(st.integers(0, 5000), st.integers(1, 1024))
def test_steps_between_two_logs_are_shared_out_evenly(count, most):
    share = even_share(count, most)
    assert 1 <= share <= most
    calls = count // share + count % share  # the rest goes one by one
    assert calls < 2 * max(1, -(-count // most))


def test_auto_groups_nothing_on_a_cpu(tmp_path):
    trainer = make_trainer(tmp_path)
    assert make_dispatcher(trainer, HostSteps(trainer, 100)).sizes == ()


def test_step_that_does_not_count_is_named_before_it_is_saved(tmp_path):
    class Forgetful(kd.train.TrainStep):
        def _step(self, state, batch):
            new_state, context = super()._step(state, batch)
            return new_state.replace(step=state.step), context

    trainer = make_trainer(tmp_path, trainstep=Forgetful(), writer=None)
    with pytest.raises(ValueError, match=r"0 updates.*were 4: does Forgetful._step"):
        trainer.train()
