"""Values are written one dispatch late, so that the device never waits for the host."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron.train.auxiliaries import AuxiliariesOutput, AuxiliariesState
from kauldron.train.wrong_labels import describe_wrong_labels
from kauldron.utils import status
from kauldron.writers.writer import FlushedTimer, ScheduleAt

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class _Pending:
    step: int
    aux: AuxiliariesState
    log_summaries: bool


class DeferredLog:
    """Holds the last logged step until the next one is on its way."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer
        self._pending: _Pending | None = None
        self._was_finite = True
        self.last_values: tuple[int, AuxiliariesOutput] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether something waits to be written."""
        return self._pending is not None

    def push(
        self,
        step: int,
        aux: AuxiliariesState,
        *,
        log_metrics: bool,
        log_summaries: bool,
    ) -> None:
        """Take over what was measured in `step`; its copy to the host starts now."""
        aux = aux.replace(
            metric_states=aux.metric_states if log_metrics else None,
            summary_states=aux.summary_states if log_summaries else None,
            error=None,
        )
        for leaf in jax.tree.leaves(aux):
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()
        self._pending = _Pending(step, aux, log_summaries)

    def write(self, perf_stats: dict[str, float]) -> None:
        """Write what is held, with the speed until then."""
        assert self._pending is not None
        pending, self._pending = self._pending, None
        values = pending.aux.compute()
        self.last_values = (pending.step, values)
        self._trainer.writer.write_step_metrics(
            step=pending.step,
            aux=values,
            schedules=_schedules_at(
                self._trainer, pending.step, pending.aux.schedule_counts
            ),
            log_summaries=pending.log_summaries,
            timer=FlushedTimer(perf_stats),
            flush=False,
        )
        self._check_finite(pending.step, values)

    def _check_finite(self, step: int, values: AuxiliariesOutput) -> None:
        if self._trainer.on_nonfinite == "ignore":
            return
        bad = {
            key: float(value)
            for key, value in values.loss_values.items()
            if _is_number(value) and not math.isfinite(value)
        }
        if bad and self._trainer.on_nonfinite == "raise":
            listed = ", ".join(f"{key}={value}" for key, value in bad.items())
            raise FloatingPointError(
                f"Loss not finite at step {step}: {listed}."
                + describe_wrong_labels(self._trainer)
            )
        if bad and self._was_finite:
            status.log_warning(
                f"Loss not finite at step {step}: {', '.join(bad)}. Training goes on; "
                "`cfg.on_nonfinite='raise'` stops it."
                + describe_wrong_labels(self._trainer)
            )
        elif not bad and not self._was_finite:
            status.log_warning(f"All losses are finite again at step {step}.")
        self._was_finite = not bad


def _schedules_at(trainer: Trainer, step: int, counts: Any) -> Any:
    """The schedules, held at the optimizer's count where that is not the step."""
    with jax.transfer_guard("allow"):
        found = {int(count) for count in counts or ()}
    if len(found) != 1 or found == {step}:
        return trainer.schedules
    (count,) = found
    losses = jax.tree.leaves(trainer.train_losses)
    weights = [getattr(loss, "weight", None) for loss in losses]  # go by the step

    def hold(schedule: Any) -> Any:
        is_weight = any(schedule is weight for weight in weights)
        return schedule if is_weight else ScheduleAt(schedule, count)

    return jax.tree.map(hold, trainer.schedules, is_leaf=callable)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.result_type(value), np.number)
