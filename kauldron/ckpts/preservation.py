"""Which checkpoints are kept. Policies are orbax's, or anything with their method."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron.ckpts import metric_values, step_folders

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer

_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class StepInfo:
    """What a policy knows of a checkpoint.

    Attributes:
      step: Its step.
      time: When it was committed.
      metrics: What it can be ranked by, if anything.
    """

    step: int
    time: datetime.datetime = _LONG_AGO
    metrics: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestByPath:
    """A policy that keeps the checkpoints with the best values of a metric.

    Of equal ones the newer are better; a value that is not a number is worst.

    Attributes:
      metric_path: Path of the metric, such as `"my_eval.accuracy"`.
      n: How many to keep; `None` for all.
      mode: Whether a higher (`"max"`) or lower (`"min"`) metric is better.
      keep_without_metric: Whether to keep all those that lack the metric.
    """

    metric_path: str
    n: int | None
    mode: str = "max"
    keep_without_metric: bool = False

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: Any = None
    ) -> list[bool]:
        """Which checkpoints to keep."""
        del context
        values = [
            metric_values.find(info.metrics, self.metric_path) for info in checkpoints
        ]
        ranks = [metric_values.rank(value, mode=self.mode) for value in values]
        order = [i for i in range(len(values)) if values[i] is not None]
        order.sort(key=lambda i: (ranks[i], checkpoints[i].step), reverse=True)
        best = set(order[: self.n])
        return [
            i in best or (value is None and self.keep_without_metric)
            for i, value in enumerate(values)
        ]


def steps_to_delete(policies: Sequence[Any], infos: Sequence[StepInfo]) -> list[int]:
    """Steps that no policy keeps; never the newest.

    Args:
      policies: Orbax preservation policies.
      infos: The checkpoints, ascending.
    """
    import orbax.checkpoint as ocp

    context = ocp.checkpoint_managers.PreservationContext()
    kept = {infos[-1].step} if infos else set()
    for policy in policies:
        flags = policy.should_preserve(list(infos), context=context)
        kept |= {info.step for info, keep in zip(infos, flags) if keep}
    return [info.step for info in infos if info.step not in kept]


def policies_of(checkpointer: Checkpointer) -> list[Any]:
    """What decides about the checkpoints of a checkpointer: kept if one says so."""
    import orbax.checkpoint as ocp

    orbax = ocp.checkpoint_managers
    if checkpointer.preservation_policy is not None:
        return [checkpointer.preservation_policy]
    if checkpointer.max_to_keep is None:
        return [orbax.LatestN(None)]
    policies: list[Any] = []
    if checkpointer.best_metric_path is not None:
        best = BestByPath(
            metric_path=checkpointer.best_metric_path,
            n=checkpointer.max_to_keep,
            mode=checkpointer.best_mode,
        )
        policies.append(best)
    elif checkpointer.max_to_keep > 0:
        policies.append(orbax.LatestN(checkpointer.max_to_keep))
    if checkpointer.keep_period is not None:
        policies.append(orbax.EveryNSteps(checkpointer.keep_period))
    if checkpointer.keep_time_interval is not None:
        seconds: Any = checkpointer.keep_time_interval.total_seconds()
        policies.append(orbax.EveryNSeconds(seconds))
    return policies


def needs_metadata(checkpointer: Checkpointer) -> bool:
    """Whether more than the steps decides about older checkpoints."""
    return not checkpointer.lightweight_initialize and (
        checkpointer.best_metric_path is not None
        or checkpointer.keep_time_interval is not None
        or checkpointer.preservation_policy is not None
    )


def read_info(root: epath.Path, step: int) -> StepInfo:
    """What a checkpoint says of itself."""
    folder = step_folders.step_folder(root, step)
    nanoseconds = step_folders.read_metadata(folder).get("commit_timestamp_nsecs")
    return StepInfo(
        step,
        datetime.datetime.fromtimestamp((nanoseconds or 0) / 1e9, tz=datetime.UTC),
        step_folders.read_metrics(folder),
    )
