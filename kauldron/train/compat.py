"""Older names and import paths, kept for code and pickles that use them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from kauldron.ckpts.items import JsonCheckpointItem
from kauldron.lazy_namespace import older_modules
from kauldron.train.forward import forward_with_loss
from kauldron.train.state import Auxiliaries, AuxiliariesState

if TYPE_CHECKING:
    import jax

    from kauldron.train.state import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelWithAux:
    """Deprecated: use `kd.train.forward_with_loss` and `Auxiliaries.update_context`.

    Attributes:
      model: The flax module.
      losses: Losses by name.
      metrics: Metrics by name.
      summaries: Summaries by name.
    """

    model: Any
    losses: Mapping[str, Any]
    metrics: Mapping[str, Any]
    summaries: Mapping[str, Any]

    @classmethod
    def of(cls, owner: Any) -> Self:
        """Return the model of a train step or an evaluator, with what it measures."""
        aux = owner.aux
        return cls(
            model=owner.model,
            losses=aux.losses,
            metrics=aux.metrics,
            summaries=aux.summaries,
        )

    def forward(
        self, context: Context, *, rngs: Mapping[str, Any], is_training: bool
    ) -> tuple[jax.Array, Context]:
        """Return the total loss, and the context with predictions and loss states."""
        _warn("forward", "kd.train.forward_with_loss")
        return forward_with_loss(
            context,
            model=self.model,
            losses=self.losses,
            rngs=rngs,
            is_training=is_training,
        )

    def get_aux(self, context: Context, **return_flags: bool) -> AuxiliariesState:
        """Return the states that the flags (`return_losses=True`, ...) ask for."""
        _warn("get_aux", "kd.train.Auxiliaries.update_context")
        aux = Auxiliaries(
            losses=self.losses, metrics=self.metrics, summaries=self.summaries
        )
        return aux.update_context(context).get_aux_state(**return_flags)


def _warn(method: str, replacement: str) -> None:
    warnings.warn(
        f"ModelWithAux.{method} is deprecated: use {replacement}.",
        DeprecationWarning,
        stacklevel=3,
    )


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
        self._total_start = self._step_start = time.perf_counter()
        self._not_total = self._not_steps = 0.0
        self._step_time = 0.0

    def finish_step(self) -> None:
        """Call at the end of each step."""
        now = time.perf_counter()
        self._step_time += now - self._step_start - self._not_steps
        self._step_start, self._not_steps = now, 0.0

    @property
    def total_training_time_hours(self) -> float:
        """Time of all starts of the run together."""
        seconds = time.perf_counter() - self._total_start - self._not_total
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
        start = time.perf_counter()
        try:
            yield
        finally:
            self._not_steps += time.perf_counter() - start

    @contextlib.contextmanager
    def exclude_from_total_time(self) -> Iterator[None]:
        """Leave the time inside out of the total time."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._not_total += time.perf_counter() - start

    def to_json(self) -> dict[str, Any]:
        return {"training_time_hours": self.total_training_time_hours}

    def with_json(self, value: Mapping[str, Any]) -> Self:
        return type(self)(
            initial_step_num=self.step_num_when_last_logged,
            initial_training_time_hours=value["training_time_hours"],
            per_device_batch_size=self.per_device_batch_size,
            global_batch_size=self.global_batch_size,
        )


older_modules(
    "kauldron.train",
    {
        "auxiliaries": "state",
        "checkpoint_state": "state",
        "context": "state",
        "exporter": "setup",
        "metric_writer": "kauldron.writers kauldron.writers.compat",
        "model_with_aux": "compat",
        "preemption": "run.preemption",
        "profiler": "run.profiler",
        "rngs_lib": "rng_streams",
        "setup_utils": "setup",
        "timer": "compat",
        "train_loop": "run.loop",
        "train_state": "state",
        "trainer_lib": "trainer",
    },
)
