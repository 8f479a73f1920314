"""When and where an evaluator runs. Imports no jax: configs name these."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class RunStrategy:
    """Base of the strategies."""

    runs_at_end: ClassVar[bool] = False

    def should_eval_in_train(self, step: int) -> bool:
        """Whether to evaluate in the training loop after `step` updates."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say when it runs: define "
            "`should_eval_in_train(self, step)`."
        )


@dataclasses.dataclass(frozen=True)
class AlongTrain(RunStrategy):
    """In the training process, between steps. Subclass it for a rule of your own."""


@dataclasses.dataclass(frozen=True)
class EveryNSteps(AlongTrain):
    """Every `n` steps, step 0 included.

    Attributes:
      n: Steps between two evaluations.
      skip_first: Whether to leave out step 0.
    """

    n: int
    _: dataclasses.KW_ONLY
    skip_first: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"EveryNSteps(n) needs n of at least 1, got {self.n}.")

    def should_eval_in_train(self, step: int) -> bool:
        if self.skip_first and step == 0:
            return False
        return step % self.n == 0


@dataclasses.dataclass(frozen=True)
class Once(AlongTrain):
    """Once, after `step` updates."""

    step: int

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError(f"Once(step) needs a step of at least 0, got {self.step}.")

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

_JOB_PARAMS = (
    "target",
    "platform",
    "priority",
    "cell",
    "citc_source",
    "use_interpreter",
    "interpreter_info",
    "constraints",
    "requirements",
    "executor",
    "args",
    "env_vars",
    "files",
    "add_jax_flags",
    "bazel_args",
    "debug",
)


class Standalone(RunStrategy):
    """In a process of its own, on checkpoints; see `trainer.continuous_eval`.

    Parameters of the job (`platform=`, `args=`, ...) are kept in `job_params` for the
    launcher, as they were given.

    Attributes:
      job_group: Evaluators of one group share a process.
      timeout_secs: How long to wait for a sign of life of the training run; `None` for
        ever.
      job_params: Parameters of the job.
    """

    __konfig_resolve_exclude_fields__ = _JOB_PARAMS

    job_group: str | None
    timeout_secs: float | None
    job_params: dict[str, Any]

    def _init(self, fields: dict[str, Any], job_params: dict[str, Any]) -> None:
        unknown = [name for name in job_params if name not in _JOB_PARAMS]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no argument {unknown[0]!r}. It has "
                f"{', '.join(fields)}, and the job parameters {', '.join(_JOB_PARAMS)}."
            )
        for name, value in {**fields, "job_params": job_params}.items():
            object.__setattr__(self, name, value)

    def should_eval_in_train(self, step: int) -> bool:
        del step
        return False


@dataclasses.dataclass(frozen=True, init=False)
class StandaloneEveryCheckpoint(Standalone):
    """In a process of its own, whenever a new checkpoint appears.

    Attributes:
      seconds_to_sleep: Time between two looks at the folder.
      skip_missed: Whether to take only the newest of the checkpoints that appeared
        during an evaluation.
    """

    job_group: str | None = None
    seconds_to_sleep: float = 1
    timeout_secs: float | None = None
    skip_missed: bool = True
    job_params: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def __init__(
        self,
        *,
        job_group: str | None = None,
        seconds_to_sleep: float = 1,
        timeout_secs: float | None = None,
        skip_missed: bool = True,
        **job_params: Any,
    ):
        self._init(
            {
                "job_group": job_group,
                "seconds_to_sleep": seconds_to_sleep,
                "timeout_secs": timeout_secs,
                "skip_missed": skip_missed,
            },
            job_params,
        )


@dataclasses.dataclass(frozen=True, init=False)
class StandaloneLastCheckpoint(Standalone):
    """In a process of its own, once, when training is complete."""

    job_group: str | None = None
    timeout_secs: float | None = None
    job_params: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def __init__(
        self,
        *,
        job_group: str | None = None,
        timeout_secs: float | None = None,
        **job_params: Any,
    ):
        self._init({"job_group": job_group, "timeout_secs": timeout_secs}, job_params)
