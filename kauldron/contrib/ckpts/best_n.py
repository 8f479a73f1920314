"""Keep the checkpoints with the best metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.ckpts.preservation import BestByPath
from kauldron.contrib.ckpts.exp_step import ExpStep

if TYPE_CHECKING:
    from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy


def keep_best_n(
    metric_path: str,
    n: int | None,
    reverse: bool = False,
    keep_checkpoints_without_metrics: bool = True,
) -> BestByPath:
    """A policy that keeps the `n` checkpoints with the best metric.

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
    """A policy that keeps what `ExpStep` or `keep_best_n` keeps.

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
