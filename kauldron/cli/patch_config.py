"""Makes a config small, for a quick try of everything in it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from kauldron import konfig
from kauldron.cli.config_changes import tracked_update

BATCH_SIZE_DEVICES = "devices"

_PROFILE_STEPS = 17


def _patch(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """Changes that make a config small: a step, a batch, no checkpoints.

    `None` leaves a value as the config has it.

    Attributes:
      stop_after_steps: Number of steps to train.
      batch_size: Of all data sets; `"devices"` is one example for each local device.
      num_batches: Of each evaluation.
      skip_eval: Whether to leave out the evaluators.
      eval_run_once: Whether each evaluator runs once, at step 0.
      skip_checkpointer: Whether to save nothing.
      skip_metrics: Whether to leave out the metrics.
      skip_summaries: Whether to leave out the summaries.
      skip_flatboard: Accepted for older code; has no effect on a run.
      profile: Whether to train 17 steps and record a profile.
      checkify: Whether to make all run-time checks.

    Example:
      >>> cfg = konfig.ConfigDict({"train_ds": {"batch_size": 256}, "checkpointer": {}})
      >>> patched, changes = PatchConfig(batch_size=2)(cfg)
      >>> changes
      {'stop_after_steps': 1, 'train_ds.batch_size': 2, 'checkpointer': None}
      >>> cfg.train_ds.batch_size
      256
    """

    stop_after_steps: int | None = _patch(1, "number of steps to train")
    batch_size: int | str | None = _patch(
        BATCH_SIZE_DEVICES, "of all data sets; 'devices' for one example per device"
    )
    num_batches: int | None = _patch(1, "of each evaluation")
    skip_eval: bool = _patch(False, "leave out the evaluators")
    eval_run_once: bool = _patch(True, "each evaluator runs once, at step 0")
    skip_checkpointer: bool = _patch(True, "save nothing")
    skip_metrics: bool = _patch(False, "leave out the metrics")
    skip_summaries: bool = _patch(False, "leave out the summaries")
    skip_flatboard: bool = _patch(True, "accepted for older scripts; has no effect")
    profile: bool = _patch(False, "train 17 steps and record a profile")
    checkify: bool = _patch(False, "make all run-time checks")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    _refuse(field.name, value, "True or False")
            elif field.name == "batch_size" and value == BATCH_SIZE_DEVICES:
                pass
            elif value is not None and (type(value) is not int or value < 0):
                _refuse(field.name, value, "a number of at least 0, or None")

    def __call__(
        self, cfg: konfig.ConfigDict, *, keep: Sequence[str] = ()
    ) -> tuple[konfig.ConfigDict, dict[str, Any]]:
        """Make a small copy of a config.

        Args:
          cfg: The config of a trainer; it stays as it is.
          keep: Paths, wildcards allowed, of fields that stay as they are.

        Returns:
          The copy, and from path to value what was changed in it.
        """
        patched = copy.deepcopy(cfg)
        changes: dict[str, Any] = {}
        for path, value in self._updates():
            root, dot, _ = path.partition(".")
            if dot and not isinstance(patched.get(root), konfig.ConfigDict):
                continue
            if root not in patched and value in (None, {}):
                continue  # what is not there is skipped already
            changes |= tracked_update(
                patched, path, value, keep=keep, label=f"--patch ({path})"
            )
        return patched, changes

    def _updates(self) -> list[tuple[str, Any]]:
        updates: list[tuple[str, Any]] = []
        if self.stop_after_steps is not None or self.profile:
            steps = _PROFILE_STEPS if self.profile else self.stop_after_steps
            updates.append(("stop_after_steps", steps))
        if self.batch_size is not None:
            updates += self._batch_size_updates()
        updates += self._eval_updates()
        if self.skip_checkpointer:
            updates.append(("checkpointer", None))
        for is_skipped, name in (
            (self.skip_metrics, "metrics"),
            (self.skip_summaries, "summaries"),
        ):
            if is_skipped:
                updates += [(f"train_{name}", {}), (f"evals.*.{name}", {})]
        if self.skip_flatboard:
            updates.append(("setup.add_flatboard", False))
        if self.profile:
            updates.append(("profiler", _profiler()))
        if self.checkify:
            checks = {"__const__": "jax.experimental.checkify:all_checks"}
            updates.append(("checkify_error_categories", konfig.ConfigDict(checks)))
        return updates

    def _batch_size_updates(self) -> list[tuple[str, Any]]:
        size = self.batch_size
        if size == BATCH_SIZE_DEVICES:
            import jax

            size = jax.local_device_count()
        return [
            ("train_ds.**.batch_size", size),
            ("train_ds.**.shuffle_buffer_size", 1),
            ("eval_ds.**.batch_size", size),
            ("evals.**.batch_size", size),
        ]

    def _eval_updates(self) -> list[tuple[str, Any]]:
        if self.skip_eval:
            return [("evals", {})]
        updates: list[tuple[str, Any]] = []
        if self.num_batches is not None:
            updates.append(("evals.**.num_batches", self.num_batches))
        if self.eval_run_once:
            once = {"__qualname__": "kauldron.kd:evals.Once", "0": 0}
            updates.append(("evals.*.run", konfig.ConfigDict(once)))
        return updates


def _profiler() -> konfig.ConfigDict:
    return konfig.ConfigDict(
        {
            "__qualname__": "kauldron.kd:inspect.Profiler",
            "profile_duration_ms": None,
            "on_colab": True,
        }
    )


def _refuse(name: str, value: Any, expected: str) -> None:
    raise ValueError(f"PatchConfig.{name} must be {expected}, got {value!r}.")
