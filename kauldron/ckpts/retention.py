"""Which checkpoints are kept: by number, time, period, and the best metric."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from kauldron import kontext
from kauldron.ckpts import step_folders
from kauldron.errors import did_you_mean

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
      is_extra: Whether it is there only because a run was interrupted. It goes as soon
        as there is a newer one, and takes the place of no other.
    """

    step: int
    time: datetime.datetime = _LONG_AGO
    metrics: Mapping[str, Any] | None = None
    is_extra: bool = False


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
        """Return which checkpoints to keep."""
        del context
        values = [find_metric(info.metrics, self.metric_path) for info in checkpoints]
        ranks = [rank_metric(value, mode=self.mode) for value in values]
        order = [i for i in range(len(values)) if values[i] is not None]
        order.sort(key=lambda i: (ranks[i], checkpoints[i].step), reverse=True)
        best = set(order[: self.n])
        return [
            i in best or (value is None and self.keep_without_metric)
            for i, value in enumerate(values)
        ]


def steps_to_delete(policies: Sequence[Any], infos: Sequence[StepInfo]) -> list[int]:
    """Return the steps (given in ascending order) that no policy keeps; never the newest."""
    import orbax.checkpoint as ocp

    context = ocp.checkpoint_managers.PreservationContext()
    kept = {infos[-1].step} if infos else set()
    planned = [info for info in infos if not info.is_extra]
    for policy in policies:
        flags = policy.should_preserve(planned, context=context)
        kept |= {info.step for info, keep in zip(planned, flags) if keep}
    return [info.step for info in infos if info.step not in kept]


def policies_of(checkpointer: Checkpointer) -> list[Any]:
    """Return the policies of a checkpointer; a step is kept if one of them says so."""
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
    """Return whether a policy looks at more than the step numbers."""
    return not checkpointer.lightweight_initialize and (
        checkpointer.best_metric_path is not None
        or checkpointer.keep_time_interval is not None
        or checkpointer.preservation_policy is not None
    )


def read_info(root: epath.Path, step: int) -> StepInfo:
    """Return what a checkpoint says of itself."""
    folder = step_folders.step_folder(root, step)
    metadata = step_folders.read_metadata(folder)
    seconds = (metadata.get("commit_timestamp_nsecs") or 0) / 1e9
    custom = metadata.get("custom_metadata") or {}
    return StepInfo(
        step,
        datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC),
        step_folders.read_metrics(folder),
        bool(custom.get("unplanned")),
    )


#
# The values that checkpoints are ranked by
#


WORST_RANK = -math.inf
_LARGEST = 1024
_log = logging.getLogger(__name__)


def metrics_to_json(values: Any, *, name: str = "metrics") -> Any:
    """Return numbers, texts and short arrays by name; leave out the rest."""
    if isinstance(values, Mapping):
        converted = {
            str(key): metrics_to_json(value, name=f"{name}.{key}")
            for key, value in values.items()
        }
        return {key: value for key, value in converted.items() if value is not None}
    if isinstance(values, str | bool | int | float):
        return values
    if isinstance(values, list | tuple):
        entries = [metrics_to_json(value, name=name) for value in values]
        return [entry for entry in entries if entry is not None]
    try:
        array = np.asarray(values)
        is_number = np.issubdtype(array.dtype, np.bool_) or array.dtype.kind in "iuf"
        if not is_number:  # bfloat16 and its like
            array = array.astype(np.float64)
        if array.size <= _LARGEST:
            return array.tolist()
    except Exception as error:  # whatever it is, it must not stop a save
        _log.debug("%s cannot be stored with the checkpoint: %r", name, error)
        return None
    _log.debug("%s is too large to be stored with the checkpoint", name)
    return None


def find_metric(values: Any, path: str | None) -> float | None:
    """Return the number at a path; `None` if there is none."""
    if path is None or not values:
        return None
    value = kontext.get_by_path(values, path, default=None)
    return float(value) if isinstance(value, bool | int | float) else None


def metric_paths(values: Any) -> list[str]:
    """Return the paths of all values."""
    return list(kontext.flatten_with_path(values))


def rank_metric(value: float | None, *, mode: str) -> float:
    """Return the rank: higher is better in any mode; NaN and no metric are worst."""
    if value is None or math.isnan(value):
        return WORST_RANK
    return value if mode == "max" else -value


#
# Whether any checkpoint will have the metric to rank by
#


_MOST_STEPS_LOOKED_AT = 10_000
_TRAIN = "train"


def metric_owner(path: str) -> str:
    """Return the evaluator that a path such as `my_eval.accuracy` begins with."""
    return str(kontext.Path.from_str(path)[0])


def missing_metric_message(path: str, values: Mapping[str, Any]) -> str:
    """Return a message about a checkpoint without the metric."""
    known = metric_paths(values)
    return (
        f"This checkpoint has no metric {path!r}, by which the best are kept: it counts "
        f"as the worst. It has: {', '.join(known) or 'none'}."
        f"{did_you_mean(path, known)} {_ADVICE}"
    )


_ADVICE = (
    "Use the metric of an evaluator that runs in the training job at the steps that are "
    "saved; metrics of training are there only if the step before was logged."
)


def metric_never_there(checkpointer: Checkpointer, trainer: Any) -> str | None:
    """Return a message about a config whose evaluations and saves never coincide."""
    path = checkpointer.best_metric_path
    if path is None or (name := metric_owner(path)) == _TRAIN:
        return None
    run = trainer.evals[name].run
    if run.includes_last_step:
        return None  # the last step is saved as well
    try:
        if any(map(run.should_eval_in_train, _saved_steps(checkpointer, trainer))):
            return None
    except NotImplementedError:  # a strategy that does not tell its steps
        return None
    return (
        f"{path!r} is ranked by, but the evaluator {name!r} never runs in the training "
        f"job at a saved step: no checkpoint will have the metric. {_ADVICE}"
    )


def _saved_steps(checkpointer: Checkpointer, trainer: Any) -> Iterable[int]:
    ends = (trainer.num_train_steps, trainer.stop_after_steps)
    last = min((end for end in ends if end is not None), default=None)
    regular = itertools.count(0, checkpointer.save_interval_steps)
    if last is not None:
        regular = itertools.takewhile(lambda step: step <= last, regular)
        yield last
    yield from checkpointer.save_on_steps or ()
    yield from itertools.islice(regular, _MOST_STEPS_LOOKED_AT)
