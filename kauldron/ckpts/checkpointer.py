"""Checkpoints of a workdir: asynchronous, whole or absent, newest never lost."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import jax
from etils import epath
from jax.experimental import multihost_utils

from kauldron import config_base, status
from kauldron.ckpts import items, restoring, retention, step_folders, structure
from kauldron.ckpts.checkpointer_base import BaseCheckpointer
from kauldron.ckpts.save_session import SaveSession
from kauldron.ckpts.step_folders import (
    CHECKPOINT_FOLDER_NAME as CHECKPOINT_FOLDER_NAME,
)
from kauldron.errors import BeyondDataError

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpointer(BaseCheckpointer):
    """Saves to `<workdir>/checkpoints/ckpt_<step>`.

    Reading never creates or changes anything; the first save makes the folder. With
    several processes, all of them must call `save` and `restore`.

    Attributes:
      save_interval_steps: Steps between two checkpoints.
      workdir: The trainer's, unless set.
      max_to_keep: How many of the newest (with `best_metric_path`: the best) to keep;
        `None` for all. The newest always stays.
      keep_time_interval: Keep one per interval besides.
      keep_period: Keep steps divisible by it besides.
      save_on_steps: Save at these steps too.
      best_metric_path: Path of the metric to rank by, such as `"my_eval.accuracy"`.
      best_mode: Whether a higher (`"max"`) or lower (`"min"`) metric is better.
      preservation_policy: An orbax policy; alone decides what is kept, besides the
        newest.
      multiprocessing_options: Orbax options for several processes.
      never_save_step_zero: Whether step 0 is never saved.
      lightweight_initialize: Whether to leave the metadata of the checkpoints of
        earlier starts unread: quick with thousands of them. `keep_time_interval` and
        `best_metric_path` then keep none of those.
      cleanup_orphaned_snapshots: Whether to remove `_SNAPSHOTS-*` folders older than
        three hours when following a run.
      fast: Accepted for older configs; has no effect.
      create: Whether this one may write; `False` for a reader.
      file_mode: Permissions of the folders.
      enable_async: Whether files are written in the background.
      checksum: Whether to note checksums of large files too, besides those of small
        ones and the sizes of all. They are checked before a checkpoint is restored,
        so that its files are read twice. Not noted in object stores.
      on_save_error: Whether a save that fails (a full disk) stops training, or is
        logged and left to the next save.
    """

    save_interval_steps: int
    workdir: epath.Path = config_base.ROOT_CFG_REF.workdir
    max_to_keep: int | None = 3
    keep_time_interval: datetime.timedelta | None = None
    keep_period: int | None = None
    save_on_steps: Sequence[int] | None = None
    best_metric_path: str | None = None
    best_mode: str = "max"
    preservation_policy: Any = dataclasses.field(default=None, hash=False)
    multiprocessing_options: Any = dataclasses.field(default=None, hash=False)
    never_save_step_zero: bool = False
    lightweight_initialize: bool = False
    cleanup_orphaned_snapshots: bool = False
    fast: bool = True
    create: bool = True
    file_mode: int | None = 0o770
    enable_async: bool = True
    checksum: bool = True
    on_save_error: Literal["raise", "warn"] = "raise"

    def __post_init__(self) -> None:
        check_options(self)
        if self.save_on_steps is not None:
            object.__setattr__(self, "save_on_steps", tuple(self.save_on_steps))
        if isinstance(self.workdir, str | os.PathLike):
            object.__setattr__(self, "workdir", epath.Path(self.workdir))

    #
    # Existing checkpoints
    #

    @property
    def folder(self) -> epath.Path:
        """Where the checkpoints are."""
        if not isinstance(self.workdir, epath.Path):
            raise ValueError(
                "The checkpointer has no folder: set `workdir=...`, or use it inside a "
                "`kd.train.Trainer`."
            )
        folder = self.workdir / CHECKPOINT_FOLDER_NAME
        return folder if "://" in str(folder) else folder.absolute()

    def _folder_of(self, step: int) -> epath.Path:
        return step_folders.step_folder(self.folder, step)

    @property
    def all_steps(self) -> list[int]:
        return [s for s in step_folders.named_steps(self.folder) if self._is_there(s)]

    @property
    def latest_step(self) -> int | None:
        steps = reversed(step_folders.named_steps(self.folder))
        return next((step for step in steps if self._is_there(step)), None)

    def _is_there(self, step: int) -> bool:
        if step in self._saves.unreadable:
            return False
        if step_folders.is_complete(self.folder, step):
            return True
        folder = self._folder_of(step)
        if folder.exists():  # it may have been deleted since it was listed
            self._saves.warn_once(
                f"{folder} is not a complete checkpoint and is ignored."
            )
        return False

    @property
    def best_step(self) -> int | None:
        """Step with the best recorded metric; `None` if none is recorded."""
        if self.best_metric_path is None:
            raise ValueError(
                "There is no best step without `best_metric_path`: set it, such as "
                "`best_metric_path='my_eval.accuracy'`."
            )
        ranks = {step: self._rank(step) for step in self.all_steps}
        best = max(ranks, key=lambda step: (ranks[step], step), default=None)
        return None if best is None or ranks[best] == retention.WORST_RANK else best

    def _rank(self, step: int) -> float:
        metrics = step_folders.read_metrics(self._folder_of(step))
        value = retention.find_metric(metrics, self.best_metric_path)
        return retention.rank_metric(value, mode=self.best_mode)

    def custom_metadata(self, step: int) -> dict[str, Any]:
        folder = self._folder_of(self.find_step(step))
        return step_folders.read_metadata(folder).get("custom_metadata") or {}

    def item_metadata(self, step: int = -1) -> Any:
        """Tree of shapes and dtypes of the default item; no data is read."""
        from kauldron.ckpts import orbax_io

        folder = self._folder_of(self.find_step(step))
        return orbax_io.stored_tree(folder / items.DEFAULT_ITEM_NAME)

    def find_step(self, step: int = -1) -> int:
        """Return the step of an existing checkpoint; -1 is the newest.

        Raises:
          FileNotFoundError: There is none; the message lists the steps there are.
        """
        step_folders.check_step(step)
        if step == -1:
            newest = self.latest_step
            if newest is not None:
                return newest
        elif step_folders.is_complete(self.folder, step):
            return step
        wanted = "no checkpoint" if step == -1 else f"no checkpoint of step {step}"
        raise FileNotFoundError(
            f"There is {wanted} in {self.folder}. Steps: "
            f"{', '.join(map(str, self.all_steps)) or 'none'}."
        )

    #
    # Saving
    #

    def should_save(self, step: int) -> bool:
        return self.is_due(step) or self._is_preempted(step)

    def is_planned(self, step: int) -> bool:
        if not self.create or (self.never_save_step_zero and step == 0):
            return False
        return step % self.save_interval_steps == 0 or step in (
            self.save_on_steps or ()
        )

    def is_due(self, step: int) -> bool:
        if not self.create:
            return False
        is_planned = self.is_planned(step)
        # The first one is due at once; if that fails, it is not tried at every step.
        waits_for_plan = self.never_save_step_zero or self._saves.has_failed
        if not is_planned and waits_for_plan:
            return False  # without looking at the folder: this is asked very often
        newest = self._saves.newest_step()
        return newest is None or (is_planned and step > newest)

    def _is_preempted(self, step: int) -> bool:
        if not self.create or jax.process_count() == 1:
            return False
        newest = self._saves.newest_step()
        is_new = newest is None or step > newest
        return is_new and multihost_utils.reached_preemption_sync_point(step)

    def save(
        self,
        state: Any,
        *,
        step: int,
        force: bool = False,
        metrics: Mapping[str, Any] | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        del force
        self._check_may_write()
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}.")
        if self.never_save_step_zero and step == 0:
            return False
        values = retention.metrics_to_json(metrics or {})
        metadata = dict(custom_metadata or {})
        is_started = self._saves.save(
            state,
            int(step),
            metrics=values if self.tracks_metrics else None,
            custom_metadata=metadata,
        )
        # An interrupted run saves before the evaluations that give the metric.
        if is_started and not metadata.get("interrupted"):
            self._check_metric(values)
        return is_started

    def add_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        self._check_may_write()
        values = retention.metrics_to_json(metrics)
        self._saves.change(self.find_step(step), step_folders.add_metrics, values)
        self._check_metric(values)

    def change_metadata(self, changes: Mapping[str, Any], *, step: int) -> None:
        """Change the custom metadata of a checkpoint that is saved already."""
        self._check_may_write()
        self._saves.change(self.find_step(step), step_folders.change_metadata, changes)

    @property
    def tracks_metrics(self) -> bool:
        """Whether metrics are stored with the checkpoints."""
        return self.best_metric_path is not None or self.preservation_policy is not None

    def _check_metric(self, values: Any) -> None:
        path = self.best_metric_path
        if path is None or retention.find_metric(values, path) is not None:
            return
        message = retention.missing_metric_message(path, values)
        if retention.metric_owner(path) in values and self.best_step is None:
            raise ValueError(message)
        self._saves.warn_once(message, about="metric")

    @property
    def is_saving(self) -> bool:
        return self._saves.is_saving

    def wait_until_finished(self) -> None:
        self._saves.finish()

    def delete(self, step: int) -> None:
        """Remove a checkpoint."""
        self._check_may_write()
        self.wait_until_finished()
        self._saves.delete(self.find_step(step))

    def clean_up(self, *, delete_old: bool = True) -> None:
        if self.create:
            self.wait_until_finished()
            self._saves.clean_up(delete_old=delete_old)

    def _check_may_write(self) -> None:
        if not self.create:
            raise ValueError(
                "This checkpointer is a reader: it has `create=False`. To write, make one "
                "with `create=True`."
            )

    def reload(self) -> None:
        self._saves.forget_listing()

    def close(self) -> None:
        try:
            self.wait_until_finished()
        finally:
            vars(self).pop("_saves", None)  # created again at the next use

    #
    # Restoring
    #

    def restore(
        self,
        state: _T,
        *,
        step: int = -1,
        noop_if_missing: bool = False,
        donate: bool = True,
    ) -> _T:
        self.wait_until_finished()
        if step != -1:
            return self._restore_step(state, self.find_step(step), donate=donate)
        found = self.restore_newest(state, donate=donate)
        if found is not None:
            return found[0]
        if noop_if_missing:
            return state
        raise FileNotFoundError(
            f"There is no checkpoint in {self.folder}. With `noop_if_missing=True` the "
            "state is returned as it is."
        )

    def restore_newest(
        self, state: _T, *, donate: bool = True
    ) -> tuple[_T, int] | None:
        self.wait_until_finished()
        first_error: Exception | None = None
        known = set(self._saves.unreadable)
        while (step := self.latest_step) is not None:
            try:
                restored, error = self._restore_step(state, step, donate=donate), None
            except (structure.StructureMismatch, BeyondDataError):
                raise  # the config has changed; the checkpoint itself is intact
            except Exception as caught:
                restored, error = state, caught
            if not restoring.is_error_anywhere(error):
                return restored, step
            error = error or OSError(f"ckpt_{step} cannot be read by another process.")
            first_error = first_error or error
            self._note_unreadable(step, error)
        if first_error is None:
            return None
        # If none can be read, the cause is not in any one of them.
        self._saves.unreadable = known
        raise first_error

    def check_fits(self, state: Any) -> None:
        step = self.latest_step
        if step is None:
            return
        try:
            restoring.check_fits(state, self._folder_of(step))
        except structure.StructureMismatch:
            raise
        except Exception as error:  # a damaged one: an older one is restored
            folder = self._folder_of(step)
            status.log_warning(f"{folder} cannot be read: {error}")

    def _restore_step(self, state: _T, step: int, *, donate: bool) -> _T:
        folder = self._folder_of(step)
        try:
            return restoring.restore_item(state, folder, donate=donate)
        except Exception as error:
            if folder.exists():
                raise
            raise FileNotFoundError(
                f"{folder} was deleted while it was read."
            ) from error

    def _note_unreadable(self, step: int, error: Exception) -> None:
        folder = self._folder_of(step)
        self._saves.unreadable.add(step)
        self._saves.forget_listing()
        status.log_error(
            f"{folder} cannot be read, the one before is tried: "
            f"{type(error).__name__}: {str(error)[:1000]}"
        )

    #
    # Following a run
    #

    def iter_new_checkpoints(
        self,
        *,
        min_interval_secs: float = 0,
        seconds_to_sleep: float = 1,
        timeout: float | None = None,
        timeout_fn: Callable[[], bool] | None = None,
    ) -> Iterator[int]:
        if self.cleanup_orphaned_snapshots:
            step_folders.remove_old_snapshots(self.folder)
        return step_folders.new_steps(
            self._latest_step_now,
            min_interval_secs=min_interval_secs,
            seconds_to_sleep=seconds_to_sleep,
            timeout=timeout,
            timeout_fn=timeout_fn,
        )

    def _latest_step_now(self) -> int | None:
        self.reload()  # so that `should_save` knows of the step too
        return self.latest_step

    #
    # Details
    #

    @functools.cached_property
    def _saves(self) -> SaveSession:
        """What changes; not a field, so that equal options make equal checkpointers."""
        return SaveSession(self)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_saves"}


#
# Invalid options
#


_LEAST_INTEGERS = {"save_interval_steps": 1, "max_to_keep": 0, "keep_period": 1}
_CHOICES = {"best_mode": ("max", "min"), "on_save_error": ("raise", "warn")}


def check_options(checkpointer: Checkpointer) -> None:
    """Raise `ValueError` naming the invalid option and what it may be."""
    for name, least in _LEAST_INTEGERS.items():
        value: Any = getattr(checkpointer, name)
        if value is None and name != "save_interval_steps":
            continue
        if not isinstance(value, numbers.Integral) or int(value) < least:
            raise ValueError(
                f"Checkpointer.{name} must be an integer of at least {least}, got "
                f"{value!r}."
            )
    interval: Any = checkpointer.keep_time_interval
    is_interval = isinstance(interval, datetime.timedelta | None)
    if not is_interval or (interval is not None and interval < datetime.timedelta(0)):
        raise ValueError(
            "Checkpointer.keep_time_interval must be a timedelta of at least 0, got "
            f"{interval!r}."
        )
    for name, choices in _CHOICES.items():
        value = getattr(checkpointer, name)
        if value not in choices:
            raise ValueError(
                f"Checkpointer.{name} must be {' or '.join(map(repr, choices))}, got "
                f"{value!r}."
            )
    if checkpointer.best_metric_path is not None:
        retention.metric_owner(checkpointer.best_metric_path)
