"""At which steps the host must look: the rest may run in one compiled call."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


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
        """Whether the update `step` writes metrics."""
        every = self.trainer.log_metrics_every
        if not every:
            return False
        is_last = self.last_step is not None and step == self.last_step - 1
        return step % every == 0 or is_last

    def logs_summaries(self, step: int) -> bool:
        """Whether the update `step` writes summaries."""
        every = self.summaries_every
        return bool(every) and step % every == 0

    @functools.cached_property
    def summaries_every(self) -> int | None:
        """How often summaries are written; `None` for never, or if there are none."""
        has_summaries = self.trainer.trainstep.aux.summaries
        return self.trainer.log_summaries_every if has_summaries else None

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

    def free_runs(self, limit: int) -> list[int]:
        """Lengths of all free runs among the first `limit` steps of the experiment."""
        lengths, step = [], 0
        if self.last_step is not None:
            limit = min(limit, self.last_step)
        while step < limit:
            length = self.free_run(step, limit - step)
            if not self.logs(step):
                lengths.append(length)
            step += length
        return lengths
