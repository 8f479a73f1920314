"""At which steps the host must look: those between them may run in one compiled call."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

# How many steps at each end of training are planned.
_PLANNED_STEPS = 5_000


@dataclasses.dataclass(frozen=True)
class HostSteps:
    """The steps before, or in, which something happens on the host.

    Attributes:
      trainer: The experiment.
      last_step: The step at which training stops, if it is known.
    """

    trainer: Trainer
    last_step: int | None

    def logs_metrics(self, step: int) -> bool:
        """Return whether the update `step` writes metrics."""
        every = self.trainer.log_metrics_every
        if not every:
            return False
        is_last = self.last_step is not None and step == self.last_step - 1
        return step % every == 0 or is_last

    def logs_summaries(self, step: int) -> bool:
        """Return whether the update `step` writes summaries."""
        every = self.summaries_every
        return bool(every) and step % every == 0

    @functools.cached_property
    def summaries_every(self) -> int | None:
        """How often summaries are written; `None` for never, or if there are none."""
        has_summaries = self.trainer.trainstep.aux.summaries
        return self.trainer.log_summaries_every if has_summaries else None

    def logs(self, step: int) -> bool:
        """Return whether the update `step` writes anything."""
        return self.logs_metrics(step) or self.logs_summaries(step)

    def is_watched(self, step: int) -> bool:
        """Return whether a hook wants the values of the update `step`."""
        return any(hook.wants_values(step) for hook in self.trainer.hooks.values())

    def is_seen(self, step: int) -> bool:
        """Return whether anybody looks at the values of the update `step`."""
        return self.logs(step) or self.is_watched(step)

    def pauses_before(self, step: int) -> bool:
        """Return whether anything happens between the updates `step - 1` and `step`."""
        trainer = self.trainer
        return (
            step == self.last_step
            or any(e.run.should_eval_in_train(step) for e in trainer.evals.values())
            or trainer.checkpointer.is_due(step)
        )

    def free_run(self, step: int, limit: int) -> int:
        """Return how many updates from `step` on the host need not see (up to `limit`).

        At least 1: a step that logs stands alone.
        """
        if self.is_seen(step):
            return 1
        for size in range(1, limit):
            if self.pauses_before(step + size) or self.is_seen(step + size):
                return size
        return limit

    def planned_runs(self) -> list[int]:
        """Lengths of the runs that the host need not see, at both ends of training.

        What happens by chance or by the clock is not planned.
        """
        runs: list[int] = []
        last = self.last_step
        spans = [(0, _PLANNED_STEPS if last is None else min(last, _PLANNED_STEPS))]
        if last is not None and last > _PLANNED_STEPS:
            spans.append((max(_PLANNED_STEPS, last - _PLANNED_STEPS), last))
        for start, stop in spans:
            length = 0
            for step in range(start, stop):
                if length and (self.is_seen(step) or self._plans_to_pause(step)):
                    runs.append(length)
                    length = 0
                length += not self.is_seen(step)
            runs.append(length)
        return [run for run in runs if run]

    def _plans_to_pause(self, step: int) -> bool:
        trainer = self.trainer
        return any(
            e.run.should_eval_in_train(step) for e in trainer.evals.values()
        ) or trainer.checkpointer.is_planned(step)
