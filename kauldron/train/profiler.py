"""Traces of what the devices do, recorded now and then."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
from etils import epath

from kauldron.utils import config_util, status


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Profiler(config_util.UpdateFromRootCfg):
    """Records a trace in `<workdir>/plugins/profile/` (TensorBoard shows it).

    A session ends when both limits that are given are reached.

    Attributes:
      num_profile_steps: Least number of steps in a session; `None` for no limit.
      profile_duration_ms: Least duration of a session; `None` for no limit.
      all_host: Whether all processes record, not only the first.
      first_profile: Steps of this process before the first session.
      every_steps: Steps between two sessions; `None` for no rule.
      every_secs: Seconds between two sessions; `None` for no rule.
      on_colab: Whether to record in notebooks.
      workdir: The trainer's, unless set.
    """

    num_profile_steps: int | None = 5
    profile_duration_ms: int | None = 3_000
    all_host: bool = False
    first_profile: int = 10
    every_steps: int | None = None
    every_secs: float | None = 3600.0
    on_colab: bool = False
    workdir: epath.Path = config_util.ROOT_CFG_REF.workdir

    def __post_init__(self) -> None:
        if self.num_profile_steps is None and self.profile_duration_ms is None:
            raise ValueError(
                "A Profiler needs `num_profile_steps` or `profile_duration_ms`: with "
                "both None a session would never end."
            )

    def start(self, step: int) -> ProfilerSession:
        """The sessions of a run that begins at `step`."""
        is_on = (self.all_host or status.is_lead_host) and (
            self.on_colab or not status.on_notebook
        )
        return ProfilerSession(self if is_on else None, step)

    def __call__(self, step: int) -> None:
        """Record around `step`, in a run driven by hand."""
        session = self.__dict__.get("_session")
        if session is None:
            session = self.start(step)
            object.__setattr__(self, "_session", session)
        session.after_step(step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopProfiler:
    """Records nothing."""

    def start(self, step: int) -> ProfilerSession:
        return ProfilerSession(None, step)

    def __call__(self, step: int) -> None:
        del step


class ProfilerSession:
    """Starts and stops the traces of one run; never fails it."""

    def __init__(self, profiler: Profiler | None, initial_step: int):
        self._profiler = profiler
        self._next_step = initial_step + (profiler.first_profile if profiler else 0)
        self._started: tuple[int, float] | None = None
        self._last_time = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether something starts or may stop after `step`."""
        return self._profiler is not None and (
            self._started is not None or self._should_start(step)
        )

    def after_step(self, step: int, pending: Any = None) -> None:
        """Start or stop a trace, after waiting for `pending` device work."""
        if self._profiler is None:
            return
        if self._started is not None:
            if self._is_over(step):
                self.close(pending)
        elif self._should_start(step):
            self._start(step, pending)

    def close(self, pending: Any = None) -> None:
        """End a session that is open, and keep it."""
        if self._started is None:
            return
        self._started = None
        self._last_time = time.monotonic()
        try:
            jax.block_until_ready(pending)
            jax.profiler.stop_trace()
        except Exception as error:
            status.log(f"The profile could not be written: {error!r}")

    def _should_start(self, step: int) -> bool:
        assert self._profiler is not None
        if self._next_step is not None and step >= self._next_step:
            return True
        every_secs = self._profiler.every_secs
        is_first_done = self._next_step is None
        return (
            is_first_done
            and every_secs is not None
            and time.monotonic() - self._last_time >= every_secs
        )

    def _start(self, step: int, pending: Any) -> None:
        assert self._profiler is not None
        every = self._profiler.every_steps
        self._next_step = None if every is None else step + every
        self._last_time = time.monotonic()
        try:
            jax.block_until_ready(pending)
            jax.profiler.start_trace(str(self._profiler.workdir))
        except Exception as error:
            status.log(f"The profiler could not be started: {error!r}")
            return
        self._started = (step, time.monotonic())

    def _is_over(self, step: int) -> bool:
        assert self._profiler is not None
        assert self._started is not None
        start_step, start_time = self._started
        steps = self._profiler.num_profile_steps
        duration = self._profiler.profile_duration_ms
        elapsed_ms = (time.monotonic() - start_time) * 1000
        return (steps is None or step - start_step >= steps) and (
            duration is None or elapsed_ms >= duration
        )
