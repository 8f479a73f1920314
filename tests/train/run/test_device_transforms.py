"""Runs whose last transforms are part of the compiled steps: the same numbers."""

import contextlib
import dataclasses
import functools
import logging
import pathlib

import jax
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import kd, writers
from kauldron.train.run import feed as feed_lib
from kauldron.train.train_step import TrainStep
from tests.train.toy import Linear, make_byte_ds, make_trainer

STEPS = 20


class Seen:
    """What is seen of runs inside the block.

    Attributes:
      sent: The dtypes of `x` in all that was brought to the device.
      traced: Grows with each trace of the step of an evaluator.
      log: What was logged.
    """

    def __init__(self):
        self.sent, self.traced, self.log = set(), [], []

    @contextlib.contextmanager
    def watch(self):
        class Spy(feed_lib.Feed):
            def __init__(feed, size, batch, position, is_rows=False):
                super().__init__(size, batch, position, is_rows)
                self.sent.add(str(batch["x"].dtype))

        original = kd.evals.Evaluator._step

        def step(evaluator, *args):
            self.traced.append(evaluator.name)
            return original(evaluator, *args)

        logger, handler = logging.getLogger("kauldron"), logging.Handler(logging.INFO)
        handler.emit = lambda record: self.log.append(record.getMessage())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(feed_lib, "Feed", Spy)
            patch.setattr(kd.evals.Evaluator, "_step", step)
            before = logger.level
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
            try:
                yield
            finally:
                logger.removeHandler(handler)
                logger.setLevel(before)


# Saves the first step and the last.
RARELY = kd.ckpts.Checkpointer(save_interval_steps=100)


@functools.cache
def _first():
    """All trainers have the same step."""
    return make_trainer(
        "unused",
        model=Linear(x="batch.x"),
        train_metrics={"x": kd.metrics.Norm(tensor="batch.x")},
        train_summaries={"x": kd.summaries.HistogramSummary(tensor="batch.x")},
        checkpointer=None,
    )


def make(workdir, device_transforms=True, **changes):
    """Summaries and metrics read the batch; the last batch of an evaluation is short."""
    train_ds = make_byte_ds(device_transforms=device_transforms)
    eval_ds = dataclasses.replace(train_ds, num_epochs=1, batch_size=24)
    kwargs = {
        "workdir": str(workdir),
        "train_ds": train_ds,
        "eval_ds": eval_ds,
        "num_train_steps": STEPS,
        "log_metrics_every": 3,
        "log_summaries_every": 6,
        "evals": {"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(8))},
    }
    return _first().replace(**(kwargs | changes))


def points(workdir, collection):
    return {
        (line["step"], name): value
        for line in writers.read_scalars(workdir / collection)
        for name, value in line["values"].items()
        if not name.startswith("perf_stats/")
    }


@dataclasses.dataclass(frozen=True)
class Run:
    trainer: kd.train.Trainer
    workdir: pathlib.Path
    state: kd.train.TrainState
    seen: Seen


def run(workdir, **changes):
    seen = Seen()
    trainer = make(workdir, **changes)
    with seen.watch():
        state, _ = trainer.train()
    return Run(trainer, workdir, state, seen)


@pytest.fixture(scope="module")
def on_host(tmp_path_factory):
    """A run whose batches are made on the host."""
    return run(tmp_path_factory.mktemp("on_host"), device_transforms=False)


@pytest.fixture(scope="module")
def on_device(tmp_path_factory):
    """A run whose batches are made on the device, and whose steps are single calls."""
    return run(tmp_path_factory.mktemp("on_device"), steps_per_dispatch=1)


def assert_same_state(state, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        state,
        expected,
    )


def assert_same_run(workdir, state, on_host):
    assert_same_state(state, on_host.state)
    for collection in ("train", "eval"):
        logged = points(workdir, collection)
        assert logged == pytest.approx(points(on_host.workdir, collection), rel=1e-4)


def test_a_run_gives_the_same_numbers(on_device, on_host):
    assert on_device.seen.sent == {"uint8"}
    assert_same_run(on_device.workdir, on_device.state, on_host)


def test_a_run_in_groups_of_steps_gives_the_same_numbers(tmp_path, on_host):
    grouped = run(tmp_path, steps_per_dispatch=4)
    assert grouped.seen.sent == {"uint8"}
    assert_same_run(tmp_path, grouped.state, on_host)


def test_a_run_on_the_host_sends_floats(on_host):
    assert on_host.seen.sent == {"float32"}


def test_checked_steps_give_the_same_numbers(tmp_path, on_host):
    checks = checkify.float_checks
    state, _ = make(tmp_path, checkify_error_categories=checks).train()
    assert_same_run(tmp_path, state, on_host)


class OwnStep(TrainStep):
    """Overrides what the loop calls."""

    def step(self, state, batch, **kwargs):
        assert batch["x"].dtype == np.float32
        return super().step(state, batch, **kwargs)


def test_a_step_of_the_users_own_gets_whole_batches(tmp_path, on_host):
    state, _ = make(tmp_path, trainstep=OwnStep()).train()
    assert_same_run(tmp_path, state, on_host)


def test_a_run_that_was_stopped_goes_on(tmp_path, on_host):
    changes = {"evals": {}, "log_metrics_every": None, "log_summaries_every": None}
    changes["checkpointer"] = RARELY
    half = make(tmp_path, stop_after_steps=9, **changes)
    half.train()
    state, _ = half.replace(stop_after_steps=None).train()
    # What was on the way makes no difference: positions do not depend on the transforms.
    whole = make(tmp_path / "whole", **changes).train()[0]
    jax.tree.map(np.testing.assert_array_equal, state, whole)


def test_a_run_goes_on_where_the_transforms_ran_elsewhere(tmp_path, on_host):
    make(
        tmp_path, device_transforms=False, stop_after_steps=9, checkpointer=RARELY
    ).train()
    state, _ = make(tmp_path, checkpointer=RARELY).train()
    assert_same_state(state, on_host.state)


def test_a_loop_of_the_users_own_sees_no_difference(on_device):
    trainer = on_device.trainer
    state = trainer.init_state()
    batches = iter(trainer.train_ds.device_put(trainer.sharding.batch))
    for _ in range(STEPS):
        batch = next(batches)
        assert batch["x"].dtype == np.float32
        state, _ = trainer.trainstep.step(state, batch)
    assert_same_state(state, on_device.state)
    assert trainer.context_specs.batch["x"].dtype == np.float32


def test_another_pipeline_is_not_given_the_transforms_of_the_first(
    tmp_path, on_device, on_host
):
    first = on_device.trainer
    other = first.replace(
        workdir=str(tmp_path),
        train_ds=dataclasses.replace(first.train_ds, device_transforms=False),
    )
    state, _ = other.train()
    assert_same_run(tmp_path, state, on_host)


def test_the_log_says_once_what_moved(on_device):
    for where in ("the train step", "the step of eval"):
        message = f"on the device, inside {where}: transforms[0] ValueRange"
        assert sum(message in line for line in on_device.seen.log) == 1


@pytest.mark.parametrize("changes", [{"cache": True}, {"num_batches": 2}], ids=str)
def test_evaluations_of_all_kinds_give_the_same_numbers(tmp_path, changes):
    evals = {"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1), **changes)}
    for wanted in (True, False):
        make(tmp_path / str(wanted), wanted, num_train_steps=2, evals=evals).train()
    one, two = (points(tmp_path / name, "eval") for name in ("True", "False"))
    assert one
    assert one == pytest.approx(two, rel=1e-4)


def test_evaluations_are_traced_once(on_host):
    assert on_host.seen.traced == ["eval"]
