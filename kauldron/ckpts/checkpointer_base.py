"""The interface of checkpointers, and the one that saves nothing."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

from kauldron import config_base

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaseCheckpointer(config_base.UpdateFromRootCfg, abc.ABC):
    """Saves and restores; also a context manager that closes itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        config_base.accept_newer_keywords(cls, "save", "custom_metadata")

    @abc.abstractmethod
    def restore(
        self,
        state: _T,
        *,
        step: int = -1,
        noop_if_missing: bool = False,
        donate: bool = True,
    ) -> _T:
        """Restore an item.

        Args:
          state: An item (such as a `TrainState`), its specs, or a tuple of items. Says
            what to restore, and where arrays go.
          step: The checkpoint; -1 for the newest.
          noop_if_missing: Whether to return `state` if there is no checkpoint.
          donate: Whether the memory of `state` may be freed.

        Returns:
          The restored item.
        """

    def check_fits(self, state: Any) -> None:
        """Raise if the newest checkpoint cannot be restored into such a state.

        Args:
          state: An item, or its specs.

        Raises:
          StructureMismatch: The checkpoint is of another model or optimizer.
        """

    @abc.abstractmethod
    def should_save(self, step: int) -> bool:
        """Return whether a checkpoint is due at `step`."""

    def is_due(self, step: int) -> bool:
        """Answer like `should_save` for any step, without asking another process."""
        return self.should_save(step)

    def is_planned(self, step: int) -> bool:
        """Answer like `is_due`, whatever was saved so far."""
        return self.is_due(step)

    @abc.abstractmethod
    def save(
        self,
        state: Any,
        *,
        step: int,
        force: bool = False,
        metrics: Mapping[str, Any] | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Start saving. Buffers may be donated as soon as this returns.

        Args:
          state: An item, or a tuple of items.
          step: Number of the checkpoint.
          force: Accepted for compatibility; an explicit call always saves.
          metrics: Values to rank checkpoints by.
          custom_metadata: A JSON mapping, given back by `custom_metadata(step)`.

        Returns:
          Whether a save was started: not if the step exists already.
        """

    def add_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Add values to rank by to a checkpoint that was saved before they were known.

        Args:
          metrics: The values.
          step: Number of the checkpoint.
        """

    @property
    @abc.abstractmethod
    def all_steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""

    @abc.abstractmethod
    def iter_new_checkpoints(
        self,
        *,
        min_interval_secs: float = 0,
        seconds_to_sleep: float = 1,
        timeout: float | None = None,
        timeout_fn: Callable[[], bool] | None = None,
    ) -> Iterator[int]:
        """Yield the newest step, then each newer one as it appears.

        Args:
          min_interval_secs: Least time between two steps.
          seconds_to_sleep: How often to look at the folder.
          timeout: Longest wait for a new step; `None` for ever.
          timeout_fn: Asked after the timeout: whether to stop.

        Yields:
          The step.
        """

    def maybe_save(
        self,
        state: Any,
        *,
        step: int,
        force: bool = False,
        metrics: Mapping[str, Any] | None = None,
    ) -> bool:
        """Save if it is due, or forced."""
        if force or self.should_save(step):
            return self.save(state, step=step, force=force, metrics=metrics)
        return False

    def restore_newest(self, state: _T) -> tuple[_T, int] | None:
        """Restore the newest readable checkpoint; `None` if there is none.

        Returns:
          The restored item and its step.
        """
        del state
        return None

    @property
    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint."""
        return max(self.all_steps, default=None)

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way."""
        return False

    def custom_metadata(self, step: int) -> dict[str, Any]:
        """Return what was given to `save` as `custom_metadata`."""
        del step
        return {}

    def clean_up(self, *, delete_old: bool = True) -> None:
        """Remove what a killed process left behind; called when training starts.

        Args:
          delete_old: Whether to remove checkpoints that are not to be kept.
        """

    def reload(self) -> None:
        """Forget what is known of the folder."""

    def wait_until_finished(self) -> None:
        """Wait for saves under way; raises what went wrong in them."""

    def close(self) -> None:
        """Wait, and release threads. May be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopCheckpointer(BaseCheckpointer):
    """Saves nothing; what `cfg.checkpointer = None` means."""

    def restore(self, state: _T, **kwargs: Any) -> _T:
        if state is None:
            raise ValueError("NoopCheckpointer.restore() needs the state to return.")
        return state

    def should_save(self, step: int) -> bool:
        return False

    def save(self, state: Any, *, step: int, **kwargs: Any) -> bool:
        return False

    def maybe_save(
        self, state: Any, *, step: int, force: bool = False, **kwargs: Any
    ) -> bool:
        if force:
            raise ValueError(
                "A NoopCheckpointer cannot be forced to save: set `cfg.checkpointer = "
                "kd.ckpts.Checkpointer(save_interval_steps=...)`."
            )
        return False

    @property
    def all_steps(self) -> list[int]:
        return []

    def iter_new_checkpoints(self, **kwargs: Any) -> Iterator[int]:
        return iter(())
