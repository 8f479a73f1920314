"""At which steps the host must look: the rest may run in one compiled call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class HostSteps:
    """The steps before, or in, which something happens on the host.

    Attributes:
      trainer: The experiment.
      last_step: The step at which training stops, if it is known.
      first_step: The step at which this start begins.
    """

    trainer: Trainer
    last_step: int | None
    first_step: int = 0

    def logs_metrics(self, step: int) -> bool:
        """Whether the update `step` writes metrics."""
        every = self.trainer.log_metrics_every
        if not every:
            return False
        is_last = self.last_step is not None and step == self.last_step - 1
        return step % every == 0 or is_last

    def logs_summaries(self, step: int) -> bool:
        """Whether the update `step` writes summaries."""
        every = self.trainer.log_summaries_every
        return bool(every) and step % every == 0

    def logs(self, step: int) -> bool:
        """Whether the update `step` writes anything."""
        return self.logs_metrics(step) or self.logs_summaries(step)

    def pauses_before(self, step: int) -> bool:
        """Whether something happens between the updates `step - 1` and `step`."""
        trainer = self.trainer
        return (
            step == self.last_step
            or any(e.run.should_eval_in_train(step) for e in trainer.evals.values())
            or trainer.checkpointer.is_due(step)
            or trainer.profiler.is_planned(step, first_step=self.first_step)
        )

    def free_run(self, step: int, limit: int) -> int:
        """How many updates from `step` on the host need not see, at most `limit`.

        At least 1: a step that logs stands alone.
        """
        if self.logs(step):
            return 1
        for size in range(1, limit):
            if self.pauses_before(step + size) or self.logs(step + size):
                return size
        return limit
