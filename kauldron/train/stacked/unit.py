"""One training of a stack: an ordinary run that shares its updates with others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from kauldron import konfig, status
from kauldron.files import write_atomically
from kauldron.train.run import lifecycle, workdir_files
from kauldron.train.run.chrono import Pause
from kauldron.train.run.deferred_log import DeferredLog
from kauldron.train.run.loop import Run
from kauldron.train.run.step_groups import HostSteps
from kauldron.train.stacked import steps

if TYPE_CHECKING:
    from kauldron.train.stacked.loop import Stack
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer

NONFINITE_FILENAME = "nonfinite.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """How a training of a stack ended.

    Attributes:
      kind: `complete`; `frozen`, if its loss was not finite; `stopped`, if someone asked
        for it; `pruned`, if it was not promising; `failed`.
      step: The number of updates that were applied.
      error: What went wrong.
    """

    kind: Literal["complete", "frozen", "stopped", "pruned", "failed"]
    step: int | None = None
    error: Exception | None = None


class Unit(Run):
    """One training of a stack: all that a run does between two steps."""

    def __init__(
        self,
        stack: Stack,
        number: int,
        trainer: Trainer,
        traced: steps.TracedStep,
        begin: lifecycle.Start,
        last_step: int,
    ):
        self._state: TrainState | None = None
        super().__init__(trainer, begin, last_step, stack.stop_request)
        self.begin = dataclasses.replace(begin, state=None)
        self.log: Log = Log(trainer)
        self.stack = stack
        self.number = number
        self.traced = traced
        self.host_steps = HostSteps(trainer, last_step)
        self.last: int = last_step
        self.later_steps = range(begin.step + 1, last_step + 1)
        self.lane = -1
        self.source = -1  # of its batches
        self.died = -1
        self.saved_at = -1
        self.evaluated_at = -1

    @property
    def state(self) -> TrainState:
        """The state, taken out of the stack when someone asks for it."""
        if self._state is None:
            self._state = steps.take_lane(self.stack.lanes, self.lane)
        return self._state

    @state.setter
    def state(self, state: TrainState | None) -> None:
        self._state = state

    @property
    def host_key(self) -> Any:
        """What is equal for units with which something happens at the same steps."""
        cfg = self.trainer.raw_cfg
        if cfg is None:
            return self.number
        parts = {n: cfg.get(n) for n in ("evals", "checkpointer")}
        return (
            self.begin.step,
            self.last,
            self.trainer.log_metrics_every,
            self.host_steps.summaries_every,
            konfig.ConfigDict(parts).to_json(),
        )

    def is_active(self, step: int) -> bool:
        """Return whether the update `step` is one of this training."""
        return self.begin.step <= step < self.last

    def continue_at_step(self) -> bool:
        """Evaluate and save what is due; return whether another update follows."""
        return self._continue_at_step()

    def save_for_leaving(self) -> None:
        """Save this step, unless it is saved."""
        checkpointer = self.trainer.checkpointer
        checkpointer.wait_until_finished()
        if lifecycle.is_real(checkpointer) and checkpointer.latest_step != self.step:
            is_evaluated = self._is_just_resumed() or self.evaluated_at == self.step
            self._save(evals_pending=not is_evaluated)
            checkpointer.wait_until_finished()

    def write_log(self) -> None:
        """Write what the last logged step measured, unless the training died before."""
        if self.log.pending is None:
            return
        if 0 <= self.died < self.log.pending.step:
            self.log.pending = None
            return
        perf_stats = self.chrono.flush_metrics()
        with self.chrono.measure(Pause.METRICS_WRITING):
            self.log.write(perf_stats)

    def _evaluate(self) -> None:
        super()._evaluate()
        self.evaluated_at = self.step

    def _save(self, *args: Any, **kwargs: Any) -> None:
        super()._save(*args, **kwargs)
        self.saved_at = self.step

    def _save_and_leave(self, *, evals_pending: bool) -> NoReturn:
        del evals_pending
        self.stack.leave()

    def _finish_steps(self, *, but: int = 0) -> None:
        self.stack.finish_steps(but=but)

    def _wait_for_steps(self, *, but: int = 0) -> None:
        self.stack.wait_for_steps(but=but)


class Log(DeferredLog):
    """Writes values as they are: what is not finite is noticed by the stack."""

    def _check_finite(self, step: int, values: Any) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class HostStepsOfUnits(HostSteps):
    """The steps at which something happens on the host in any of the units.

    It is asked about every step: one unit stands for all that have the same schedule.
    """

    units: Sequence[Unit] = ()

    def logs_metrics(self, step: int) -> bool:
        return self._any(step, lambda unit: unit.host_steps.logs_metrics(step))

    def logs_summaries(self, step: int) -> bool:
        return self._any(step, lambda unit: unit.host_steps.logs_summaries(step))

    def pauses_before(self, step: int) -> bool:
        return any(
            step == unit.begin.step
            or (step in unit.later_steps and unit.host_steps.pauses_before(step))
            for unit in self.units
        )

    def plans_to_pause(self, step: int) -> bool:
        return self._any(step, lambda unit: unit.host_steps.plans_to_pause(step))

    def _any(self, step: int, condition: Any) -> bool:
        return any(unit.is_active(step) and condition(unit) for unit in self.units)


#
# Losses that are not finite
#


def nonfinite_ending(trainer: Trainer, step: int) -> Ending:
    """Return the ending of a training whose loss was not finite."""
    text = f"Loss not finite at step {step}."
    if trainer.on_nonfinite == "raise":
        return Ending(kind="failed", step=step, error=FloatingPointError(text))
    return Ending(kind="frozen", step=step)


def write_nonfinite(trainer: Trainer, step: int) -> None:
    """Mark a run that ended early; with `on_nonfinite="warn"` it counts as complete."""
    status.log_warning(
        f"{trainer.workdir}: loss not finite at step {step}. This training stops here; "
        "the others of its stack go on."
    )
    saved = trainer.checkpointer.latest_step
    if trainer.on_nonfinite == "warn":
        workdir_files.write_train_complete(
            trainer, step=step if saved is None else saved, final_evals=[]
        )
    path = trainer.workdir / NONFINITE_FILENAME
    write_atomically(path, json.dumps({"step": step}) + "\n")


def read_nonfinite(trainer: Trainer) -> int | None:
    """Return the step that `write_nonfinite` wrote; `None` if it did not."""
    path = trainer.workdir / NONFINITE_FILENAME
    return json.loads(path.read_text())["step"] if path.exists() else None
