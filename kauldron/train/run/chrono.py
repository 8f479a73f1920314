"""Where the time of a run goes: steps, and pauses between them."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from kauldron.ckpts.items import JsonCheckpointItem


class Pause(enum.StrEnum):
    """Names of the pauses that the train loop makes."""

    CHECKPOINT = "checkpoint"
    EVALS_ALONG_TRAIN = "evals_along_train"
    METRICS_WRITING = "metrics_writing"


@dataclasses.dataclass
class Section:
    """How often something happened, and how long it took in total."""

    num_steps: int = 0
    total_time: float = 0.0

    def add(self, num_steps: int, seconds: float) -> None:
        self.num_steps += num_steps
        self.total_time += seconds

    @property
    def average(self) -> float:
        return self.total_time / self.num_steps


@dataclasses.dataclass
class RunningPause:
    """A pause under way; set `report_as` to `None` if nothing worth counting happened."""

    report_as: str | None


@dataclasses.dataclass(kw_only=True)
class Chrono(JsonCheckpointItem):
    """Times the steps of a loop, on the host.

    JAX computes asynchronously, so that a single step's time says little: averages over
    many steps are what `flush_metrics` gives.

    Attributes:
      name: Name of the loop in the metrics.
      batch_size: Global batch size, to report data points per second.
      pause_names: The pauses that may occur.
      chrono_since_last_flush: From the loop's name and those of pauses to their times.

    Example:
      >>> chrono = Chrono(name="train")
      >>> chrono.start_loop()
      >>> for _ in range(3):
      ...     with chrono.pause(report_as=Pause.CHECKPOINT):
      ...         pass  # save
      ...     chrono.finish_step()
      >>> sorted(chrono.flush_metrics())  # doctest: +NORMALIZE_WHITESPACE
      ['checkpoint/avg_time_sec', 'first_step_sec', 'steps_per_sec',
       'total_training_time_hours', 'train/avg_time_sec']
    """

    name: str
    batch_size: int | None = None
    pause_names: Sequence[str] = ()
    chrono_since_last_flush: dict[str, Section] = dataclasses.field(
        default_factory=dict
    )
    _global_total_time: float = 0.0
    _start_time: float | None = None  # of the current step
    _last_tick: float | None = dataclasses.field(default=None, repr=False)
    _paused_time: float = dataclasses.field(default=0.0, repr=False)
    _pause_depth: int = dataclasses.field(default=0, repr=False)
    _is_first_step: bool = dataclasses.field(default=True, repr=False)
    _first_step_time: float | None = dataclasses.field(default=None, repr=False)
    _last_rate: float | None = dataclasses.field(default=None, repr=False)
    _data_wait: float | None = dataclasses.field(default=None, repr=False)
    _last_data_wait: float | None = dataclasses.field(default=None, repr=False)

    def start_loop(self) -> None:
        """Call right before the loop, also after a restore."""
        self._start_time = self._last_tick = _now()
        self._paused_time = 0.0
        self._is_first_step = True

    def finish_step(self, num_steps: int = 1) -> None:
        """Call at the end of a step; the next one begins at this moment.

        Args:
          num_steps: How many steps were done at once.
        """
        if self._start_time is None:
            raise RuntimeError("Call `chrono.start_loop()` before the first step.")
        now = self._tick()
        step_time = now - self._start_time - self._paused_time
        self._section(self.name).add(num_steps, step_time)
        if self._is_first_step:
            self._is_first_step = False
            self._first_step_time = step_time
        self._start_time, self._paused_time = now, 0.0

    def add_data_wait(self, seconds: float) -> None:
        """Note that the loop waited this long for its next batch."""
        self._data_wait = (self._data_wait or 0.0) + seconds

    @contextlib.contextmanager
    def pause(self, report_as: str | None = None) -> Iterator[RunningPause]:
        """Leave the time inside out of the step's time (not out of the total time).

        Args:
          report_as: Name under which the average duration is reported.

        Yields:
          The pause; its `report_as` can still be changed.
        """
        running = RunningPause(report_as)
        start = _now()
        if self._last_tick is None:  # outside of the loop
            self._last_tick = start
        self._pause_depth += 1
        try:
            yield running
        finally:
            self._pause_depth -= 1
            seconds = self._tick() - start
            if self._pause_depth == 0:
                self._paused_time += seconds
                if self._start_time is None:
                    self._last_tick = None
            if running.report_as is not None:
                self._section(str(running.report_as)).add(1, seconds)

    @contextlib.contextmanager
    def measure(self, report_as: str) -> Iterator[None]:
        """Report how long something takes that the devices do not wait for.

        Unlike that of a pause, its time belongs to the steps computed meanwhile.

        Args:
          report_as: Name under which the average duration is reported.
        """
        start = _now()
        try:
            yield
        finally:
            self._section(report_as).add(1, _now() - start)

    @property
    def steps_per_sec(self) -> float | None:
        """Speed since the last flush; the speed before it while no step is done."""
        steps = self.chrono_since_last_flush.get(self.name)
        if steps is None or not steps.total_time:
            return self._last_rate
        return steps.num_steps / steps.total_time

    @property
    def data_wait_fraction(self) -> float | None:
        """Share of the steps' time spent waiting for data, over the last whole window."""
        return self._last_data_wait

    def flush_metrics(self) -> dict[str, float]:
        """Return averages since the last call, and begin a new window.

        Returns:
          `steps_per_sec`, `data_points_per_sec_global` and `..._per_device` (with a
          batch size), `<name>/avg_time_sec` of the loop and of each pause,
          `first_step_sec` (mostly compilation) if the window has the first step of the
          loop, `data_wait_fraction` (of a loop that notes how long it waits for data),
          `total_training_time_hours`. What did not happen is left out.
        """
        metrics = {"total_training_time_hours": self._global_total_time / 3600}
        for name, section in self.chrono_since_last_flush.items():
            if section.num_steps:
                metrics[f"{name}/avg_time_sec"] = section.average
        steps = self.chrono_since_last_flush.get(self.name, Section())
        if steps.total_time > 0:
            metrics |= self._rates(steps)
            if self._data_wait is not None:
                # Steps in flight are waited for already, and counted only later.
                fraction = min(1.0, self._data_wait / steps.total_time)
                metrics["data_wait_fraction"] = self._last_data_wait = fraction
                self._data_wait = 0.0
        if self._first_step_time is not None:
            metrics["first_step_sec"] = self._first_step_time
            self._first_step_time = None
        self._last_rate = self.steps_per_sec
        self.chrono_since_last_flush = {}
        return metrics

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint stores."""
        sections = self.chrono_since_last_flush.items()
        return {
            "name": self.name,
            "batch_size": self.batch_size,
            "pause_names": [str(name) for name in self.pause_names],
            "chrono_since_last_flush": {k: dataclasses.asdict(v) for k, v in sections},
            "_start_time": self._start_time,
            "_global_total_time": self._global_total_time,
        }

    def with_json(self, value: Mapping[str, Any]) -> Self:
        """Return a chrono like this one that continues the accumulated times of a checkpoint.

        Unknown entries are ignored and missing ones count as zero. Clock values of
        another process mean nothing here: call `start_loop` afterwards.
        """
        sections = value.get("chrono_since_last_flush") or {}
        older_total = 3600 * (value.get("training_time_hours") or 0.0)
        return type(self)(
            name=self.name,
            batch_size=self.batch_size,
            pause_names=self.pause_names,
            chrono_since_last_flush={
                name: Section(s.get("num_steps", 0), s.get("total_time", 0.0))
                for name, s in sections.items()
            },
            _global_total_time=value.get("_global_total_time") or older_total,
        )

    def _rates(self, steps: Section) -> dict[str, float]:
        per_second = steps.num_steps / steps.total_time
        rates = {"steps_per_sec": per_second}
        if self.batch_size:
            import jax

            points = per_second * self.batch_size
            rates["data_points_per_sec_global"] = points
            rates["data_points_per_sec_per_device"] = points / jax.device_count()
        return rates

    def _section(self, name: str) -> Section:
        return self.chrono_since_last_flush.setdefault(name, Section())

    def _tick(self) -> float:
        """Add what has passed since the last tick to the total time."""
        now = _now()
        if self._last_tick is not None:
            self._global_total_time += now - self._last_tick
        self._last_tick = now
        return now


def _now() -> float:
    return time.perf_counter()
