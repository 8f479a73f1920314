"""Traces of what the devices do, recorded now and then."""

from __future__ import annotations

import dataclasses
import time

import jax
from etils import epath

from kauldron import config_base, status


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Profiler(config_base.UpdateFromRootCfg):
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
      trace_python: Whether to record each Python call too. That makes short steps take
        twice as long, and a trace of a few seconds tens of megabytes.
      workdir: The trainer's, unless set.
    """

    num_profile_steps: int | None = 5
    profile_duration_ms: int | None = None
    all_host: bool = False
    first_profile: int = 10
    every_steps: int | None = None
    every_secs: float | None = 3600.0
    on_colab: bool = False
    trace_python: bool = False
    workdir: epath.Path = config_base.ROOT_CFG_REF.workdir

    def __post_init__(self) -> None:
        if self.num_profile_steps is None and self.profile_duration_ms is None:
            raise ValueError(
                "A Profiler needs `num_profile_steps` or `profile_duration_ms`: with "
                "both None a session would never end."
            )

    def start(self, step: int) -> ProfilerSession:
        """Return the sessions of a run that begins at `step`."""
        is_host_on = self.all_host or status.is_lead_host
        is_on = is_host_on and (self.on_colab or not status.on_notebook)
        return ProfilerSession(self, step) if is_on else NoProfilerSession()

    def __call__(self, step: int) -> None:
        """Record around `step`, in a loop driven by hand; `close` it afterwards."""
        session = vars(self).get("_session")
        if session is None:
            session = self.start(step)
            object.__setattr__(self, "_session", session)
        session.after_step(step)

    def close(self) -> None:
        """End and keep the session that a loop driven by hand left open."""
        session = vars(self).get("_session")
        if session is not None:
            object.__setattr__(self, "_session", None)
            session.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopProfiler:
    """Records nothing; what `cfg.profiler = None` means."""

    def start(self, step: int) -> ProfilerSession:
        del step
        return NoProfilerSession()

    def __call__(self, step: int) -> None:
        del step

    def close(self) -> None:
        pass


class ProfilerSession:
    """Starts and stops the traces of one run; never fails it."""

    def __init__(self, profiler: Profiler, initial_step: int):
        self._profiler = profiler
        self._first_step = initial_step + profiler.first_profile
        self._last: tuple[int, float] | None = None  # when a session last began
        self._is_open = False

    def is_due(self, step: int) -> bool:
        """Return whether a trace starts or ends after `step`."""
        return self._is_over(step) if self._is_open else self._should_start(step)

    def after_step(self, step: int) -> None:
        """Start or end a trace, if it is time; the devices should have nothing to do."""
        if not self.is_due(step):
            return
        if self._is_open:
            self.close()
        else:
            self._start(step)

    def close(self) -> None:
        """End a trace that is open, and keep it."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            _wait_for_devices()
            jax.profiler.stop_trace()
        except Exception as error:
            status.log_warning(
                f"The profile could not be written, training goes on: {error!r}"
            )

    def _should_start(self, step: int) -> bool:
        if self._last is None:
            return step >= self._first_step
        last_step, last_time = self._last
        every_steps, every_secs = self._profiler.every_steps, self._profiler.every_secs
        return (every_steps is not None and step >= last_step + every_steps) or (
            every_secs is not None and time.monotonic() >= last_time + every_secs
        )

    def _start(self, step: int) -> None:
        self._last = (step, time.monotonic())
        try:
            _wait_for_devices()
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = int(self._profiler.trace_python)
            jax.profiler.start_trace(
                str(self._profiler.workdir), profiler_options=options
            )
        except Exception as error:
            status.log_warning(
                f"The profiler could not be started, training goes on: {error!r}"
            )
            return
        self._last = (step, time.monotonic())
        self._is_open = True

    def _is_over(self, step: int) -> bool:
        assert self._last is not None
        start_step, start_time = self._last
        steps = self._profiler.num_profile_steps
        duration = self._profiler.profile_duration_ms
        elapsed_ms = (time.monotonic() - start_time) * 1000
        return (steps is None or step - start_step >= steps) and (
            duration is None or elapsed_ms >= duration
        )


class NoProfilerSession(ProfilerSession):
    """Records nothing."""

    def __init__(self) -> None:
        self._is_open = False

    def _should_start(self, step: int) -> bool:
        del step
        return False


def _wait_for_devices() -> None:
    """Wait until the devices are idle: CUPTI breaks programs that run when it stops."""
    zeros = [jax.device_put(0, device) for device in jax.local_devices()]
    jax.block_until_ready([_add_one(zero) for zero in zeros])


@jax.jit
def _add_one(x: jax.Array) -> jax.Array:
    return x + 1
