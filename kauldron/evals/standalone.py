"""Evaluations in a process of their own: `trainer.continuous_eval(names)`."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from kauldron import ckpts, status, writers
from kauldron.errors import error_prefix
from kauldron.evals.run_strategies import (
    Standalone,
    StandaloneEveryCheckpoint,
    StandaloneLastCheckpoint,
)
from kauldron.evals.standalone_files import (
    CheckpointSource,
    EarlierRun,
    EvalProgress,
    KeptCheckpoints,
    OwnRun,
    evaluation_lock,
    group_folder,
)
from kauldron.files import write_atomically
from kauldron.train.run import preemption, workdir_files
from kauldron.train.run.preemption import raise_if_stop_requested
from kauldron.train.run.terminal import panel
from kauldron.train.state import AuxiliariesState

if TYPE_CHECKING:
    from kauldron.evals.evaluator_base import EvaluatorBase
    from kauldron.train import Setup, Trainer, TrainState


EVAL_ONLY_CONFIG_FILENAME = "eval_only_config.json"


def follow(trainer: Trainer, evaluators: Mapping[str, EvaluatorBase]) -> dict[str, Any]:
    """Evaluate checkpoints as they appear, until training is complete.

    Returns the result of the last evaluation by name; an empty `AuxiliariesState` if
    there was none.

    Raises:
      ExceptionGroup: Evaluators failed; the others have gone on to the end.
      TimeoutError: The training job gave no sign of life for `timeout_secs`.
      Preempted: The process was asked to stop.
    """
    check(trainer, evaluators)
    trainer.setup.run(trainer)
    names = list(evaluators)
    folder = group_folder(trainer, names)
    with contextlib.ExitStack() as stack:
        if status.is_lead_host:
            stack.enter_context(evaluation_lock(folder, names))
        stack.enter_context(panel.shown(trainer))
        panel.begin_evaluations(trainer, names)
        stop = stack.enter_context(
            preemption.stop_on_signals("stopping after this batch")
        )
        stack.enter_context(preemption.watched(stop))
        for evaluator in evaluators.values():
            stack.callback(evaluator.writer.close)
        group = EvaluatorGroup(evaluators, EvalProgress(folder, names))
        try:
            if trainer.setup.eval_only:
                _write_eval_only_config(trainer)
                _evaluate_chosen_checkpoint(trainer, group)
            if group.alive:
                source = _make_source(trainer, group)
                Follower(source, group, trainer.setup, KeptCheckpoints(folder)).run()
        except preemption.StopRequested:
            status.log(f"Stopped evaluating {', '.join(names)}, as asked.")
            stop.leave(group.step)
        return group.finish()


def check(trainer: Trainer, evaluators: Mapping[str, EvaluatorBase]) -> None:
    """Raise `ValueError` if the evaluators cannot run on checkpoints."""
    if trainer.setup.eval_only:
        return
    for name, evaluator in evaluators.items():
        if not isinstance(evaluator.run, Standalone):
            others = [
                other
                for other, e in trainer.evals.items()
                if isinstance(e.run, Standalone)
            ]
            raise ValueError(
                f"Evaluator {name!r} does not run in a process of its own: its strategy "
                f"is {evaluator.run!r}. Standalone evaluators: "
                f"{', '.join(others) or 'none'}."
            )
    if isinstance(trainer.checkpointer, ckpts.NoopCheckpointer):
        raise ValueError(
            "This experiment saves no checkpoints, so there is nothing to evaluate: set "
            "`cfg.checkpointer = kd.ckpts.Checkpointer(...)`."
        )


def _make_source(trainer: Trainer, group: EvaluatorGroup) -> CheckpointSource:
    if trainer.setup.eval_only:
        return EarlierRun(trainer)
    needs_opt_state = any(e.needs_opt_state for e in group.alive.values())
    return OwnRun(trainer, with_optimizer=needs_opt_state)


#
# An earlier run
#


def _write_eval_only_config(trainer: Trainer) -> None:
    if trainer.raw_cfg is not None and status.is_lead_host:
        path = trainer.workdir / EVAL_ONLY_CONFIG_FILENAME
        write_atomically(path, trainer.raw_cfg.to_json(indent=2))


def _evaluate_chosen_checkpoint(trainer: Trainer, group: EvaluatorGroup) -> None:
    """Run the evaluators that do not follow the earlier run, on what the config loads."""
    names = [
        name
        for name, evaluator in group.alive.items()
        if not isinstance(evaluator.run, StandaloneEveryCheckpoint)
    ]
    if not names:
        return
    trainer.setup.log_status("Loading the state of the earlier run")
    state = trainer.init_state()
    group.evaluate(names, state, int(state.step))
    group.retire(names)


#
# The loop that evaluates checkpoints as another process writes them
#


_DEFAULT_POLL_SECS = 1.0


class _Due(NamedTuple):
    """What to do next.

    Attributes:
      step: The checkpoint to evaluate; -1 for none.
      names: The evaluators to run on it.
      is_complete: Whether training had ended before the checkpoints were listed.
    """

    step: int
    names: list[str]
    is_complete: bool


class Follower:
    """Evaluates the checkpoints of a run until it is complete and none is left."""

    def __init__(
        self,
        source: CheckpointSource,
        group: EvaluatorGroup,
        setup: Setup,
        kept: KeptCheckpoints,
    ):
        self._source = source
        self._group = group
        self._setup = setup
        self._kept = kept
        self._patience = _make_patience(group)
        self._unreadable: dict[int, Exception] = {}
        self._has_loaded = False

    def run(self) -> None:
        """Follow the run to its end."""
        while (path := self._source.awaited_file()) is not None:
            self._patience.wait(f"{path}, which training writes when it starts")
        self._evaluate_kept()
        while self._group.alive:
            due = self._next()
            if due.names:
                self._evaluate(due.step, due.names)
                self._patience.renew()
            elif due.is_complete:
                self._check_that_all_had_something()
                return
            else:
                self._patience.wait(self._awaited())

    #
    # What is due
    #

    def _next(self) -> _Due:
        """Return the next checkpoint; all processes of the job agree on it."""
        is_complete = self._source.is_complete()  # before listing: none is missed then
        due = self._find_due(self._readable_steps(), is_complete)
        if jax.process_count() == 1:
            return due
        flags = [name in due.names for name in self._group.names]
        message = np.array([due.step, due.is_complete, *flags])
        step, is_complete, *flags = multihost_utils.broadcast_one_to_all(message)
        names = [name for name, flag in zip(self._group.names, flags) if flag]
        return _Due(int(step), names, bool(is_complete))

    def _find_due(self, steps: list[int], is_complete: bool) -> _Due:
        """Return the oldest checkpoint that is wanted, and the evaluators that want it."""
        wanted: dict[str, int] = {}
        for name, evaluator in self._group.alive.items():
            last = self._group.progress.last_step(name)
            new_steps = [step for step in steps if step > last]
            is_early = isinstance(evaluator.run, StandaloneLastCheckpoint) and (
                not is_complete
            )
            if new_steps and not is_early:
                takes_all = not getattr(evaluator.run, "skip_missed", True)
                wanted[name] = new_steps[0 if takes_all else -1]
        step = min(wanted.values(), default=-1)
        names = [name for name, other in wanted.items() if other == step]
        return _Due(step, names, is_complete)

    def _readable_steps(self) -> list[int]:
        steps = self._source.steps()
        readable = [step for step in steps if step not in self._unreadable]
        if steps and not readable and not self._has_loaded:
            raise next(iter(self._unreadable.values()))
        return readable

    #
    # Evaluating
    #

    def _evaluate(self, step: int, names: list[str]) -> None:
        state = self._load(step)
        if state is None:
            return
        self._setup.log_status(f"Evaluating checkpoint {step}: {', '.join(names)}")
        self._group.evaluate(names, state, step)
        self._drop_kept()

    def _load(self, step: int) -> TrainState | None:
        """Return the state; `None` if the checkpoint is gone or damaged."""
        try:
            if not self._setup.preemptable_eval:
                state = self._source.load(step)
            else:
                if status.is_lead_host:
                    self._kept.keep(self._source.checkpoint_folder, step)
                _wait_for_all("kept")
                state = self._source.load(step, workdir=self._kept.workdir)
        except ckpts.StructureMismatch:
            raise
        except Exception as error:
            if step in self._source.steps():
                path = f"{self._source.checkpoint_folder}/ckpt_{step}"
                status.log_error(f"{path} cannot be read: {error!r}")
                self._unreadable[step] = error
            else:
                status.log(f"Checkpoint {step} was deleted while it was read.")
            return None
        self._has_loaded = True
        return state

    def _evaluate_kept(self) -> None:
        """Begin with what an interrupted evaluation had kept."""
        for step in self._kept.steps():
            names = self._find_due([step], False).names
            if names:
                self._setup.log_status(f"Evaluating checkpoint {step} again")
                state = self._source.load(step, workdir=self._kept.workdir)
                self._has_loaded = True
                self._group.evaluate(names, state, step)
        self._drop_kept()

    def _drop_kept(self) -> None:
        _wait_for_all("evaluated")
        if status.is_lead_host:
            self._kept.drop()

    #
    # Messages
    #

    def _check_that_all_had_something(self) -> None:
        progress = self._group.progress
        if all(progress.last_step(name) >= 0 for name in self._group.alive):
            return
        cause = next(iter(self._unreadable.values()), None)
        raise FileNotFoundError(
            f"Training in {self._source.workdir} is complete, but there is no checkpoint "
            f"to evaluate in {self._source.checkpoint_folder}."
        ) from cause

    def _awaited(self) -> str:
        last = max(self._group.progress.last_step(name) for name in self._group.alive)
        which = f"a checkpoint after step {last}" if last >= 0 else "a checkpoint"
        marker = self._source.workdir / workdir_files.TRAIN_COMPLETE_FILENAME
        is_older = max(self._source.steps(), default=last) < last
        hint = f" (was the run started over? Then delete {self._group.progress.folder})"
        where = self._source.checkpoint_folder
        return f"{which} in {where}{hint if is_older else ''}, or for {marker}"


def _wait_for_all(what: str) -> None:
    """Wait for the other processes of this job."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


def _make_patience(group: EvaluatorGroup) -> Patience:
    strategies = [evaluator.run for evaluator in group.alive.values()]
    polls = [getattr(run, "seconds_to_sleep", _DEFAULT_POLL_SECS) for run in strategies]
    limits = [getattr(run, "timeout_secs", None) for run in strategies]
    return Patience(
        poll_secs=min(polls),
        timeout_secs=min((n for n in limits if n is not None), default=None),
    )


#
# The evaluators of one process: their results, errors and progress
#


class EvaluatorGroup:
    """Runs evaluators; one that fails does not stop the others.

    Attributes:
      alive: The evaluators that are still to be run, by name.
      progress: What they have finished.
      step: The step that was evaluated last.
    """

    def __init__(self, evaluators: Mapping[str, EvaluatorBase], progress: EvalProgress):
        self.names = list(evaluators)
        self.alive = dict(evaluators)
        self.progress = progress
        self.step = -1
        self._results: dict[str, Any] = {n: AuxiliariesState() for n in evaluators}
        self._errors: list[Exception] = []
        self._has_started: set[str] = set()

    def evaluate(self, names: Iterable[str], state: TrainState, step: int) -> None:
        """Run some evaluators on a state; what they have finished is noted."""
        self.step = step
        for name in names:
            evaluator = self.alive[name]
            try:
                with error_prefix(f"Evaluator {name} failed at step {step}: "):
                    self._drop_earlier_attempt(name, step)
                    self._results[name] = evaluator.evaluate(state, step)
                    evaluator.writer.flush()
            except preemption.StopRequested:
                raise
            except Exception as error:
                status.log_error("".join(traceback.format_exception(error)))
                self._errors.append(error)
                self.retire([name])
            else:
                self.progress.finish(name, step)

    def retire(self, names: Iterable[str]) -> None:
        """Stop running these evaluators."""
        for name in names:
            self.alive.pop(name, None)

    def finish(self) -> dict[str, Any]:
        """Return the results by name, or what went wrong."""
        if self._errors:
            raise ExceptionGroup("Evaluators failed", self._errors)
        return self._results

    def _drop_earlier_attempt(self, name: str, step: int) -> None:
        """Drop values of this step that a killed process wrote but did not note."""
        if name in self._has_started or not status.is_lead_host:
            return
        self._has_started.add(name)
        writer = self.alive[name].writer
        logged = writers.read_scalars(epath.Path(writer.workdir) / name)
        if all(line["step"] <= step for line in logged):
            writer.resume(step=step)


#
# Waiting for the training job
#


_LOG_SECONDS = 60.0
_SIGNAL_SECONDS = 0.2


class Patience:
    """Waits for a moment, logs what it waits for, and gives up after a limit."""

    def __init__(self, *, poll_secs: float, timeout_secs: float | None):
        self._poll_secs = poll_secs
        self._timeout_secs = timeout_secs
        self._since = time.monotonic()
        self._last_log: float | None = None

    def renew(self) -> None:
        """Restart the time limit, because something appeared."""
        self._since = time.monotonic()
        self._last_log = None

    def wait(self, awaited: str) -> None:
        """Wait a moment; raises `TimeoutError` if nothing appeared for too long."""
        now = time.monotonic()
        limit = self._timeout_secs
        if limit is not None and now - self._since >= limit:
            raise TimeoutError(
                f"Nothing appeared for {limit:g} seconds (`timeout_secs`), still waiting "
                f"for {awaited}. Is the training job alive?"
            )
        if self._last_log is None or now - self._last_log >= _LOG_SECONDS:
            self._last_log = now
            status.log(f"Waiting for {awaited}.")
            if (shown := panel.current()) is not None:
                shown.phase = "waiting"
        end = now + self._poll_secs
        if limit is not None:
            end = min(end, self._since + limit)
        while (left := end - time.monotonic()) > 0:
            raise_if_stop_requested()
            time.sleep(min(left, _SIGNAL_SECONDS))
        raise_if_stop_requested()
