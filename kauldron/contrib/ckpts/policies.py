"""Which checkpoints are kept: those at exponentially growing steps, and the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kauldron.ckpts.retention import BestByPath

if TYPE_CHECKING:
    from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy


@dataclasses.dataclass(frozen=True)
class ExpStep:
    """Keeps step 0 and the steps `interval * base**k`.

    Attributes:
      interval: The first step to keep, after 0.
      base: How many times further the next one is.

    Example:
      >>> policy = ExpStep(interval=100, base=2)
      >>> [step for step in range(0, 1000, 50) if policy.keeps(step)]
      [0, 100, 200, 400, 800]
    """

    interval: int = 100
    base: int = 2

    def __post_init__(self) -> None:
        for name, least in (("interval", 1), ("base", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"ExpStep.{name} must be an integer of at least {least}, got "
                    f"{value!r}."
                )

    def keeps(self, step: int) -> bool:
        """Return whether the checkpoint of a step is kept."""
        quotient, rest = divmod(step, self.interval)
        if rest:
            return False
        while quotient > 1 and quotient % self.base == 0:
            quotient //= self.base
        return quotient <= 1

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any = None
    ) -> list[bool]:
        """Return which checkpoints to keep."""
        del context
        return [self.keeps(info.step) for info in checkpoints]


def keep_best_n(
    metric_path: str,
    n: int | None,
    reverse: bool = False,
    keep_checkpoints_without_metrics: bool = True,
) -> BestByPath:
    """Return a policy that keeps the `n` checkpoints with the best metric.

    Args:
      metric_path: Path of the metric, such as `"my_eval.accuracy"`.
      n: How many to keep; `None` for all.
      reverse: Whether the lowest is the best.
      keep_checkpoints_without_metrics: Whether to keep all that lack the metric.

    Returns:
      The policy.
    """
    return BestByPath(
        metric_path=metric_path,
        n=n,
        mode="min" if reverse else "max",
        keep_without_metric=keep_checkpoints_without_metrics,
    )


def keep_exp_step_and_best_n(
    interval: int,
    metric_path: str,
    n: int | None,
    base: int = 2,
    reverse: bool = False,
    keep_checkpoints_without_metrics: bool = True,
) -> AnyPreservationPolicy:
    """Return a policy that keeps what `ExpStep` or `keep_best_n` keeps.

    Args:
      interval: As in `ExpStep`.
      metric_path: As in `keep_best_n`.
      n: As in `keep_best_n`.
      base: As in `ExpStep`.
      reverse: As in `keep_best_n`.
      keep_checkpoints_without_metrics: As in `keep_best_n`.

    Returns:
      The policy.
    """
    from orbax.checkpoint import checkpoint_managers

    best = keep_best_n(metric_path, n, reverse, keep_checkpoints_without_metrics)
    return checkpoint_managers.AnyPreservationPolicy([ExpStep(interval, base), best])
