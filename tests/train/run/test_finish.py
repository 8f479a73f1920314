"""However a run ends, what it logged is on disk, and nobody is left behind."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import threading

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kauldron import kd, writers
from kauldron.data.iters import as_iterator
from kauldron.train.run import lifecycle
from kauldron.train.run.dispatch import make_dispatcher
from kauldron.train.run.feed import read_feeds
from kauldron.train.run.step_groups import HostSteps
from tests.train.toy import Linear, make_ds, make_trainer


def _steps(folder, key="losses/l2"):
    """Steps of the points in both files."""
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    in_events = [event.step for event in accumulator.Scalars(key)]
    lines = writers.read_scalars(folder)
    assert in_events == [line["step"] for line in lines if key in line["values"]]
    return in_events


class Probe(kd.evals.EvaluatorBase):
    """Does what it is told to at its step."""

    action: object

    def evaluate(self, state, step):
        return self.action()


def _raise(error):
    def action():
        raise error

    return action


def _evals(action, step):
    """An evaluation at every step, and then something that happens."""
    return {
        "eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1), num_batches=1),
        "probe": Probe(run=kd.evals.Once(step), action=action),
    }


class Leave(kd.train.Hook):
    """Ends the run in some way at step 2."""

    way: object

    def wants_values(self, step):
        return step == 1

    def on_step(self, event):
        if event.step == 2:
            self.way(event)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (lambda event: None, {"reason": "done", "step": 4}),
        (
            lambda event: event.stop("it is enough"),
            {"reason": "early stopping", "detail": "it is enough", "step": 2},
        ),
        (
            lambda event: os.kill(os.getpid(), signal.SIGTERM),
            {"reason": "preempted", "step": 2},
        ),
        (
            lambda event: os.kill(os.getpid(), signal.SIGINT),
            {"reason": "interrupted", "step": 2},
        ),
        (
            lambda event: _raise(RuntimeError("out of coffee"))(),
            {
                "reason": "error",
                "error": "RuntimeError",
                "detail": "Hook leave failed at step 2: out of coffee",
                "step": 2,
            },
        ),
    ],
    ids=["done", "hook", "sigterm", "sigint", "error"],
)
def test_run_info_says_how_the_run_ended(tmp_path, way, expected):
    def train(hook):
        trainer = make_trainer(
            tmp_path, num_train_steps=4, log_metrics_every=1, hooks={"leave": hook}
        )
        with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):
            trainer.train()
        return json.loads((tmp_path / "run_info.json").read_text())["end"]

    end = train(Leave(way=way))
    assert end.pop("time") > 0
    assert end == expected
    if expected["reason"] != "done":  # a start that goes on forgets it
        assert train(Leave(way=lambda event: None))["reason"] == "done"


@pytest.mark.parametrize("error", [RuntimeError("out of coffee"), KeyboardInterrupt()])
def test_values_logged_before_an_error_are_readable(tmp_path, error, new_threads):
    trainer = make_trainer(
        tmp_path,
        log_metrics_every=1,
        eval_ds=make_ds(),
        evals=_evals(_raise(error), 3),
        checkpointer=None,
    )
    with pytest.raises(type(error)):
        trainer.train()
    assert _steps(tmp_path / "train") == [0, 1, 2]
    assert _steps(tmp_path / "eval") == [0, 1, 2, 3]
    assert new_threads() == []
    assert not (tmp_path / "train_complete.txt").exists()


def test_writers_of_evaluators_are_closed_at_the_end(tmp_path, new_threads):
    trainer = make_trainer(
        tmp_path,
        num_train_steps=2,
        eval_ds=make_ds(),
        evals=_evals(lambda: None, 1),
        checkpointer=None,
    )
    trainer.train()
    assert _steps(tmp_path / "eval") == [0, 1, 2] and new_threads() == []


def test_no_checkpoint_is_taken_when_a_run_fails(tmp_path):
    trainer = make_trainer(
        tmp_path,
        num_train_steps=6,
        evals={"probe": Probe(run=kd.evals.Once(5), action=_raise(ValueError("no")))},
        writer=None,
    )
    with pytest.raises(ValueError, match="no"):
        trainer.train()
    assert trainer.checkpointer.all_steps == [0, 4]


def test_full_disk_while_logging_stops_the_run_with_the_folder(tmp_path, new_threads):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "scalars.jsonl").symlink_to("/dev/full")
    trainer = make_trainer(tmp_path, checkpointer=None)
    with pytest.raises(OSError, match="No space left on device") as error:
        trainer.train()
    assert error.value.errno == errno.ENOSPC
    assert str(tmp_path / "train") in str(error.value)
    assert not (tmp_path / "train_complete.txt").exists()
    assert new_threads() == []


def test_removed_folder_stops_the_run_with_its_name(tmp_path):
    def remove():
        trainer.writer.flush()
        shutil.rmtree(tmp_path / "train")

    evals = {"probe": Probe(run=kd.evals.Once(3), action=remove)}
    trainer = make_trainer(tmp_path, evals=evals, checkpointer=None)
    with pytest.raises(FileNotFoundError, match=r"log was removed.*train'"):
        trainer.train()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unclosable(kd.train.NoopWriter):
    """Fails at the very end."""

    def close(self):
        raise OSError("the pipe is broken")


def test_failure_to_close_does_not_hide_the_first_error(tmp_path):
    evals = {"probe": Probe(run=kd.evals.Once(1), action=_raise(ValueError("first")))}
    trainer = make_trainer(
        tmp_path, writer=Unclosable(), evals=evals, checkpointer=None
    )
    with pytest.raises(ValueError, match="first") as error:
        trainer.train()
    assert any("the pipe is broken" in note for note in error.value.__notes__)


def test_save_that_hangs_holds_an_error_up_only_so_long(tmp_path, monkeypatch):
    release = threading.Event()

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Hanging(kd.ckpts.Checkpointer):
        def close(self):
            release.wait()
            super().close()

    monkeypatch.setattr(lifecycle, "_LONGEST_WAIT_AFTER_ERROR_SECS", 0.1)
    evals = {"probe": Probe(run=kd.evals.Once(1), action=_raise(ValueError("first")))}
    trainer = make_trainer(
        tmp_path, checkpointer=Hanging(save_interval_steps=1), evals=evals, writer=None
    )
    try:
        with pytest.raises(ValueError, match="first") as error:
            trainer.train()
    finally:
        release.set()
    [note] = error.value.__notes__
    assert note.startswith("Closing the checkpointer failed as well: it takes more")


def test_failure_to_close_is_raised_if_nothing_else_is(tmp_path):
    trainer = make_trainer(
        tmp_path, num_train_steps=1, writer=Unclosable(), checkpointer=None
    )
    with pytest.raises(OSError, match="the pipe is broken"):
        trainer.train()


def test_loop_does_not_wait_for_the_writer(tmp_path):
    """The files stay blocked until the loop has come to its last steps."""
    blocked, release = threading.Event(), threading.Event()

    def block():
        trainer.writer.write_scalars(0, {"first": 1.0})
        trainer.writer._later(lambda: (blocked.set(), release.wait()))

    evals = {
        "block": Probe(run=kd.evals.Once(1), action=block),
        "release": Probe(run=kd.evals.Once(29), action=release.set),
    }
    trainer = make_trainer(tmp_path, num_train_steps=30, evals=evals, checkpointer=None)
    trainer.train()
    assert blocked.is_set()
    assert _steps(tmp_path / "train") == [0, 5, 10, 15, 20, 25, 29]


class Peeking(kd.train.TrainStep):
    """Computes with numbers of the host in each step, and while it is traced."""

    def step(self, state, batch, **kwargs):
        assert jnp.sin(np.zeros(3)).sum() == 0
        return super().step(state, batch, **kwargs)


class Folding(Linear):
    """Computes a constant while it is traced."""

    @nn.compact
    def __call__(self, x):
        with jax.ensure_compile_time_eval():
            scale = float(jnp.exp(np.zeros(3)).max())
        return {"y": nn.Dense(self.size, name="dense")(scale * x)}


class JnpWriter(kd.train.NoopWriter):
    def write_scalars(self, step, scalars):
        assert jnp.isfinite(jnp.asarray(list(scalars.values()))).all()


@dataclasses.dataclass(frozen=True, kw_only=True)
class JnpStrategy(kd.evals.RunStrategy):
    def should_eval_in_train(self, step):
        return bool(jnp.asarray(step) % 4 == 0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JnpCheckpointer(kd.ckpts.Checkpointer):
    def should_save(self, step):
        return bool(jnp.asarray(step) % 4 == 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"trainstep": Peeking()},
        {"model": Folding(x="batch.x")},
        {"writer": JnpWriter()},
        {"evals": {"e": Probe(run=JnpStrategy(), action=lambda: jnp.ones(2).sum())}},
        {"checkpointer": JnpCheckpointer(save_interval_steps=4)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_users_code_may_move_data_between_host_and_device(tmp_path, changes):
    # All steps are one program.
    changes = {"checkpointer": None, "log_metrics_every": 1} | changes
    state, _ = make_trainer(tmp_path, **changes).train()
    assert int(state.step) == 10


def test_compiled_steps_move_no_data_behind_the_back(tmp_path):
    trainer = make_trainer(tmp_path, checkpointer=None, steps_per_dispatch=1)
    dispatcher = make_dispatcher(trainer, HostSteps(trainer, 10))
    feeds = read_feeds(as_iterator(trainer.train_ds), dispatcher, 0)
    state, *_ = dispatcher.run(trainer.init_state(), next(feeds), 1)
    state, *_ = dispatcher.run(state, next(feeds), 2)
    with pytest.raises(RuntimeError, match="Disallowed host-to-device"):
        dispatcher.run(jax.device_get(state), next(feeds), 3)


class Shift(Linear):
    """Few operations: without `jit`, each is a program of its own."""

    @nn.compact
    def __call__(self, x):
        shift = self.param("shift", nn.initializers.zeros, (self.size,))
        return {"y": x[:, : self.size] + shift}


def test_runs_under_the_debugging_modes_of_jax(tmp_path):
    with jax.disable_jit():
        state, _ = make_trainer(
            tmp_path,
            model=Shift(x="batch.x"),
            num_train_steps=1,
            optimizer=optax.sgd(0.1),
            train_metrics={},
            checkpointer=None,
            writer=None,
        ).train()
    assert int(state.step) == 1
