"""The loop that evaluates checkpoints as another process writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from kauldron import ckpts
from kauldron.evals.checkpoint_keeping import KeptCheckpoints
from kauldron.evals.checkpoint_sources import CheckpointSource
from kauldron.evals.evaluator_group import EvaluatorGroup
from kauldron.evals.patience import Patience
from kauldron.evals.run_strategies import StandaloneLastCheckpoint
from kauldron.train import workdir_files
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.train import Setup, TrainState

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
        """The next checkpoint; all processes of the job agree on it."""
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
        """The oldest checkpoint that an evaluator wants, and all that want it."""
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
        """The state; `None` if the checkpoint is gone or damaged."""
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
        """What an interrupted evaluation was about comes first."""
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
        anew = f" (was the run begun anew? Then delete {self._group.progress.folder})"
        where = self._source.checkpoint_folder
        return f"{which} in {where}{anew if is_older else ''}, or for {marker}"


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
