"""When and where an evaluator runs. Imports no jax: configs name these."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

from kauldron.errors import did_you_mean
from kauldron.immutabledict import ImmutableDict, freeze
from kauldron.job_params import JOB_PARAMS


def _check_integer(name: str, value: Any, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} needs an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} needs an integer of at least {least}, got {value}.")


@dataclasses.dataclass(frozen=True)
class RunStrategy:
    """Base of the strategies.

    Attributes:
      runs_at_end: Whether it runs in the training process, after the last step.
      runs_in_training: Whether it runs in the training process at all.
      includes_last_step: Whether the last step of training is evaluated too, whatever
        `should_eval_in_train` says: before it is saved, so that it can be the best.
    """

    runs_at_end: ClassVar[bool] = False
    includes_last_step: ClassVar[bool] = False
    runs_in_training: ClassVar[bool] = True

    def should_eval_in_train(self, step: int) -> bool:
        """Return whether to evaluate in the training loop after `step` updates."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say when it runs: define "
            "`should_eval_in_train(self, step)`."
        )


@dataclasses.dataclass(frozen=True)
class AlongTrain(RunStrategy):
    """In the training process, between steps, and always after the last one.

    Subclass it for a rule of your own.
    """

    includes_last_step: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class EveryNSteps(AlongTrain):
    """Every `n` steps, step 0 included, and after the last one.

    Attributes:
      n: Steps between two evaluations.
      skip_first: Whether to leave out step 0.

    Example:
      >>> [step for step in range(7) if EveryNSteps(3).should_eval_in_train(step)]
      [0, 3, 6]
    """

    n: int
    _: dataclasses.KW_ONLY
    skip_first: bool = False

    def __post_init__(self) -> None:
        _check_integer("EveryNSteps(n)", self.n, least=1)

    def should_eval_in_train(self, step: int) -> bool:
        if self.skip_first and step == 0:
            return False
        return step % self.n == 0


@dataclasses.dataclass(frozen=True)
class Once(AlongTrain):
    """Once, after `step` updates."""

    includes_last_step: ClassVar[bool] = False

    step: int

    def __post_init__(self) -> None:
        _check_integer("Once(step)", self.step, least=0)

    def should_eval_in_train(self, step: int) -> bool:
        return step == self.step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Final(RunStrategy):
    """In the training process, after the last step.

    Attributes:
      free_memory: Whether to release what training left on the devices before.
    """

    runs_at_end: ClassVar[bool] = True

    free_memory: bool = True

    def should_eval_in_train(self, step: int) -> bool:
        del step
        return False


#
# In a process of their own
#


@dataclasses.dataclass(frozen=True, init=False)
class Standalone(RunStrategy):
    """In a process of its own, on checkpoints; see `trainer.continuous_eval`.

    Parameters of the job (`platform=`, `env_vars=`, ...) are never resolved: they are
    kept for a launcher, in `job_params` and as attributes.

    Attributes:
      job_group: Evaluators of one group share a process.
      timeout_secs: How long to wait for a sign of life of the training run; `None` for
        ever.
      job_params: The parameters of the job that were given.
    """

    __konfig_resolve_exclude_fields__ = JOB_PARAMS
    runs_in_training: ClassVar[bool] = False

    job_group: str | None = None
    timeout_secs: float | None = None
    job_params: Mapping[str, Any] = dataclasses.field(
        default_factory=ImmutableDict, hash=False
    )

    def should_eval_in_train(self, step: int) -> bool:
        del step
        return False

    def __getattr__(self, name: str) -> Any:
        if name in JOB_PARAMS and name in self.job_params:
            return self.job_params[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    def _set(self, given: Mapping[str, Any], **fields: Any) -> None:
        """Fill in the fields; `given` are the other arguments of the constructor."""
        params = {**given, **given.get("job_params", {})}
        params.pop("job_params", None)
        for name in params:
            if name not in JOB_PARAMS:
                raise TypeError(_unknown_argument(type(self).__name__, name, fields))
        for name, value in fields.items():
            if name in ("timeout_secs", "seconds_to_sleep") and (value or 0) < 0:
                raise ValueError(f"{name} must not be negative, got {value}.")
            object.__setattr__(self, name, value)
        if self.job_group == "train":
            raise ValueError("job_group='train': that is the name of the training job.")
        object.__setattr__(self, "job_params", freeze(params))


@dataclasses.dataclass(frozen=True, init=False)
class StandaloneEveryCheckpoint(Standalone):
    """In a process of its own, whenever a new checkpoint appears.

    Attributes:
      seconds_to_sleep: How often to look at the folder.
      skip_missed: Whether to take only the newest of the checkpoints that are there.
        Otherwise all are evaluated, oldest first, as long as they exist.
    """

    seconds_to_sleep: float = 1
    skip_missed: bool = True

    def __init__(
        self,
        *,
        job_group: str | None = None,
        seconds_to_sleep: float = 1,
        timeout_secs: float | None = None,
        skip_missed: bool = True,
        **job_params: Any,
    ):
        self._set(
            job_params,
            job_group=job_group,
            seconds_to_sleep=seconds_to_sleep,
            timeout_secs=timeout_secs,
            skip_missed=skip_missed,
        )


@dataclasses.dataclass(frozen=True, init=False)
class StandaloneLastCheckpoint(Standalone):
    """In a process of its own, once, when training is complete."""

    def __init__(
        self,
        *,
        job_group: str | None = None,
        timeout_secs: float | None = None,
        **job_params: Any,
    ):
        self._set(job_params, job_group=job_group, timeout_secs=timeout_secs)


def _unknown_argument(cls: str, name: str, fields: Mapping[str, Any]) -> str:
    hint = did_you_mean(name, [*fields, *JOB_PARAMS])
    return (
        f"{cls} has no argument {name!r}.{hint} It has {', '.join(fields)}, and the "
        f"parameters of a job: {', '.join(JOB_PARAMS)}."
    )


def job_groups(strategies: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the evaluators by the name of the process that they run in.

    Args:
      strategies: Run strategies by evaluator name.

    Example:
      >>> from kauldron import kd
      >>> grouped = kd.evals.StandaloneEveryCheckpoint(job_group="both")
      >>> alone = kd.evals.StandaloneLastCheckpoint()
      >>> job_groups({"a": grouped, "b": grouped, "c": alone, "d": kd.evals.Once(0)})
      {'both': ['a', 'b'], 'c': ['c']}
    """
    groups: dict[str, list[str]] = {}
    for name, run in strategies.items():
        if not run.runs_in_training:
            groups.setdefault(run.job_group or name, []).append(name)
    return groups
