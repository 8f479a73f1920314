"""The older timer of train loops; new code uses `kd.utils.chrono.Chrono`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from kauldron.utils.json_item import JsonCheckpointItem


class PerformanceTimer(JsonCheckpointItem):
    """Steps and data points per second between two calls of `log_stats`.

    Args:
      initial_step_num: Step at which the loop starts.
      initial_training_time_hours: Time that earlier starts of the run took.
      per_device_batch_size: Examples per step and device.
      global_batch_size: Examples per step.
    """

    def __init__(
        self,
        initial_step_num: int,
        initial_training_time_hours: float,
        per_device_batch_size: float,
        global_batch_size: int,
    ):
        self.step_num_when_last_logged = initial_step_num
        self.initial_training_time_hours = initial_training_time_hours
        self.per_device_batch_size = per_device_batch_size
        self.global_batch_size = global_batch_size
        self._total_start = self._step_start = _now()
        self._not_total = self._not_steps = 0.0
        self._step_time = 0.0

    def finish_step(self) -> None:
        """Call at the end of each step."""
        now = _now()
        self._step_time += now - self._step_start - self._not_steps
        self._step_start, self._not_steps = now, 0.0

    @property
    def total_training_time_hours(self) -> float:
        """Time of all starts of the run together."""
        seconds = _now() - self._total_start - self._not_total
        return self.initial_training_time_hours + seconds / 3600

    def log_stats(self, step_num: int) -> dict[str, float]:
        """Rates since the last call; left out if no step was finished.

        Args:
          step_num: The current step.

        Returns:
          `steps_per_sec`, `data_points_per_sec_per_device`,
          `data_points_per_sec_global` and `total_training_time_hours`.
        """
        stats = {"total_training_time_hours": self.total_training_time_hours}
        num_steps = step_num - self.step_num_when_last_logged
        if num_steps and self._step_time > 0:
            rate = num_steps / self._step_time
            stats["steps_per_sec"] = rate
            stats["data_points_per_sec_per_device"] = rate * self.per_device_batch_size
            stats["data_points_per_sec_global"] = rate * self.global_batch_size
        self.step_num_when_last_logged = step_num
        self._step_time = 0.0
        return stats

    @contextlib.contextmanager
    def exclude_from_step_stats(self) -> Iterator[None]:
        """Leave the time inside out of the time of steps."""
        start = _now()
        try:
            yield
        finally:
            self._not_steps += _now() - start

    @contextlib.contextmanager
    def exclude_from_total_time(self) -> Iterator[None]:
        """Leave the time inside out of the total time."""
        start = _now()
        try:
            yield
        finally:
            self._not_total += _now() - start

    def to_json(self) -> dict[str, Any]:
        return {"training_time_hours": self.total_training_time_hours}

    def with_json(self, value: Mapping[str, Any]) -> Self:
        return type(self)(
            initial_step_num=self.step_num_when_last_logged,
            initial_training_time_hours=value["training_time_hours"],
            per_device_batch_size=self.per_device_batch_size,
            global_batch_size=self.global_batch_size,
        )


def _now() -> float:
    return time.perf_counter()
