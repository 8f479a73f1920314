"""Checkpoints of a workdir: asynchronous, whole or absent, newest never lost."""

from __future__ import annotations

import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
from etils import epath

from kauldron.ckpts import checksums, items, metric_values, step_folders, structure
from kauldron.ckpts.checkpointer_base import BaseCheckpointer
from kauldron.utils import config_util, status
from kauldron.utils.error_context import error_prefix

_T = TypeVar("_T")
_SAVE_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpointer(BaseCheckpointer):
    """Saves to `<workdir>/checkpoints/ckpt_<step>`.

    Reading never creates or changes anything; the first save makes the folder.

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
      lightweight_initialize: Whether to skip the metadata of old checkpoints when
        opening: quick with thousands of them.
      cleanup_orphaned_snapshots: Whether to remove old `_SNAPSHOTS-*` folders.
      fast: Accepted for older configs; has no effect.
      create: Whether this one may write; `False` for a reader.
      file_mode: Permissions of the folders.
      enable_async: Whether files are written in the background.
      checksum: Whether to note a checksum of every array, and check it when restoring.
    """

    save_interval_steps: int
    workdir: epath.Path = config_util.ROOT_CFG_REF.workdir
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
    checksum: bool = False

    def __post_init__(self) -> None:
        if self.save_interval_steps < 1:
            raise ValueError(
                "Checkpointer.save_interval_steps must be at least 1, got "
                f"{self.save_interval_steps}."
            )
        if self.best_mode not in ("max", "min"):
            raise ValueError(
                f"Checkpointer.best_mode must be 'max' or 'min', got {self.best_mode!r}."
            )
        if self.save_on_steps is not None:
            object.__setattr__(self, "save_on_steps", tuple(self.save_on_steps))

    #
    # What there is
    #

    @property
    def folder(self) -> epath.Path:
        """Where the checkpoints are."""
        if isinstance(self.workdir, config_util.RootCfgRef) or not str(self.workdir):
            raise ValueError("Checkpointer.workdir is not set: set `workdir=...`.")
        return epath.Path(self.workdir) / step_folders.CHECKPOINT_FOLDER_NAME

    @property
    def all_steps(self) -> list[int]:
        for path in step_folders.incomplete_folders(self.folder):
            self._warn_once(f"{path} holds no complete checkpoint and is ignored.")
        return step_folders.complete_steps(self.folder)

    @property
    def best_step(self) -> int | None:
        """Step with the best recorded metric."""
        ranked = [
            (self.metric_or_worst(step_folders.read_metadata(f).get("metrics")), step)
            for step in self.all_steps
            for f in [step_folders.step_folder(self.folder, step)]
        ]
        ranked = [(value, step) for value, step in ranked if math.isfinite(value)]
        if not ranked:
            return None
        best = max if self.best_mode == "max" else min
        return best(ranked)[1]

    def custom_metadata(self, step: int) -> dict[str, Any]:
        folder = step_folders.step_folder(self.folder, step)
        metadata = step_folders.read_metadata(folder).get("custom_metadata") or {}
        return {k: v for k, v in metadata.items() if k != checksums.KEY}

    def item_metadata(self, step: int = -1) -> Any:
        """Tree of shapes and dtypes of the default item; no data is read."""
        from kauldron.ckpts import orbax_manager

        folder = step_folders.step_folder(self.folder, self._existing_step(step))
        return orbax_manager.stored_tree(folder / items.DEFAULT_ITEM_NAME)

    #
    # Saving
    #

    def should_save(self, step: int) -> bool:
        if self.never_save_step_zero and step == 0:
            return False
        newest = self._newest_started()
        if newest is None:
            return not self.never_save_step_zero or self._is_due(step)
        return step > newest and self._is_due(step)

    def _is_due(self, step: int) -> bool:
        return step % self.save_interval_steps == 0 or step in (
            self.save_on_steps or ()
        )

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
        if not self.create:
            raise ValueError("This checkpointer is a reader: it has `create=False`.")
        if self.never_save_step_zero and step == 0:
            return False
        self.wait_until_finished()
        if step in step_folders.complete_steps(self.folder):
            return False
        parts = items.split(state)
        values = metric_values.to_json(metrics or {})
        metadata = dict(custom_metadata or {})
        if self.checksum:
            metadata[checksums.KEY] = checksums.of_parts(parts)
        self._check_metric(values)
        with jax.transfer_guard("allow"):
            self._save_parts(parts, step, values, metadata)
        self._memory["started"] = step
        return True

    def _save_parts(
        self, parts: Mapping[str, Any], step: int, metrics: Any, metadata: Any
    ) -> None:
        import orbax.checkpoint as ocp

        args = {name: part.__kd_ocp_save_args__() for name, part in parts.items()}
        for attempt in range(1, _SAVE_ATTEMPTS + 1):
            manager = self._manager(parts)
            try:
                with error_prefix(f"Saving {self.folder}/ckpt_{step} failed: "):
                    manager.save(
                        step,
                        args=ocp.args.Composite(**args),
                        metrics=metrics if self.tracks_metrics else None,
                        custom_metadata=metadata,
                        force=True,
                    )
                return
            except OSError as error:
                self._drop_manager()
                if attempt == _SAVE_ATTEMPTS:
                    raise
                status.log(f"{error} Trying again.")
                time.sleep(attempt)

    def wait_until_finished(self) -> None:
        manager = self._memory.get("manager")
        if manager is None:
            return
        try:
            started = self._memory.get("started")
            with error_prefix(f"Saving {self.folder}/ckpt_{started} failed: "):
                manager.wait_until_finished()
        except BaseException:
            # Orbax counts the step as saved; a new manager looks at the folder.
            self._drop_manager()
            raise

    def delete(self, step: int) -> None:
        """Remove a checkpoint."""
        self.wait_until_finished()
        step_folders.delete(self.folder, self._existing_step(step))
        self._drop_manager()

    def reload(self) -> None:
        self._memory.pop("started", None)

    def close(self) -> None:
        try:
            self.wait_until_finished()
        finally:
            self._drop_manager()

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
        if step < -1:
            raise ValueError(f"step must be a step or -1 for the newest, got {step}.")
        if step != -1:
            return self._restore_step(state, self._existing_step(step), donate=donate)
        restored = self.restore_newest(state, donate=donate)
        if restored is not None:
            return restored[0]
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
        for step in reversed(self.all_steps):
            try:
                return self._restore_step(state, step, donate=donate), step
            except structure.StructureMismatch:
                raise
            except Exception as error:
                first_error = first_error or error
                state = _forget_arrays(state)
                status.log_error(
                    f"{self.folder}/ckpt_{step} cannot be read, the one before is "
                    f"tried: {error!r}"
                )
        if first_error is not None:
            raise first_error
        return None

    def _restore_step(self, state: _T, step: int, *, donate: bool) -> _T:
        from kauldron.ckpts import orbax_manager

        folder = step_folders.step_folder(self.folder, step)
        parts = _parts_on_disk(items.split(state), folder)
        for name, part in parts.items():
            tree = part._as_tree() if _is_standard(part) else None
            if tree is not None:
                structure.check_fits(
                    structure.flatten(tree),
                    structure.flatten(orbax_manager.stored_tree(folder / name)),
                    where=f"{folder}/{name}",
                )
        if donate:
            parts = {name: _free_arrays(part) for name, part in parts.items()}
        consumed = " (the state that was passed is consumed)" if donate else ""
        with (
            error_prefix(f"Restoring {folder} failed{consumed}: "),
            jax.transfer_guard("allow"),
        ):
            restored = {
                name: orbax_manager.restore_part(part, folder / name)
                for name, part in parts.items()
            }
            checksums.check(restored, step_folders.read_metadata(folder))
        return items.join(state, {**items.split(state), **restored})

    def _existing_step(self, step: int) -> int:
        steps = self.all_steps
        if step == -1 and steps:
            return steps[-1]
        if step not in steps:
            raise FileNotFoundError(
                f"There is no checkpoint of step {step} in {self.folder}. Steps: "
                f"{', '.join(map(str, steps)) or 'none'}."
            )
        return step

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
        last = -1
        while True:
            step = self._wait_for_step(last, seconds_to_sleep, timeout, timeout_fn)
            if step is None:
                return
            started = time.monotonic()
            yield step
            last = step
            time.sleep(max(0.0, min_interval_secs - (time.monotonic() - started)))

    def _wait_for_step(
        self,
        last: int,
        seconds_to_sleep: float,
        timeout: float | None,
        timeout_fn: Callable[[], bool] | None,
    ) -> int | None:
        """The newest step after `last`; `None` when there will be no other."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            is_over = time.monotonic() >= deadline and (
                timeout_fn is None or timeout_fn()
            )
            newest = self.latest_step  # looked at after `timeout_fn` said yes
            if newest is not None and newest > last:
                return newest
            if is_over:
                return None
            time.sleep(seconds_to_sleep)

    #
    # Ranking
    #

    @property
    def tracks_metrics(self) -> bool:
        """Whether metrics are stored with the checkpoints."""
        return self.best_metric_path is not None or self.preservation_policy is not None

    def metric_or_worst(self, metrics: Any) -> float:
        """The metric that checkpoints are ranked by; what has none comes last."""
        worst = -math.inf if self.best_mode == "max" else math.inf
        value = metric_values.find(metrics, self.best_metric_path)
        return worst if value is None or math.isnan(value) else value

    def _check_metric(self, values: Any) -> None:
        path = self.best_metric_path
        if path is None or metric_values.find(values, path) is not None:
            return
        evaluator = path.split(".")[0]
        message = (
            f"This checkpoint has no metric {path!r}, by which the best are kept. It has: "
            f"{', '.join(metric_values.paths(values)) or 'none'}. An evaluator must run "
            "at the steps that are saved."
        )
        if evaluator in values:
            raise ValueError(message)
        self._warn_once(message)

    #
    # Details
    #

    @property
    def _memory(self) -> dict[str, Any]:
        """What is known of this process: the open manager, the last save started."""
        return self.__dict__.setdefault("_memory_dict", {})

    def _manager(self, parts: Mapping[str, Any]) -> Any:
        from kauldron.ckpts import orbax_manager

        if self._memory.get("part_names") != tuple(parts):
            self._drop_manager()
        if "manager" not in self._memory:
            if status.is_lead_host and not self._memory.get("is_clean"):
                step_folders.remove_leftovers(self.folder)
                self._memory["is_clean"] = True
            manager = orbax_manager.open_manager(self, self.folder, parts)
            self._memory.update(manager=manager, part_names=tuple(parts))
        return self._memory["manager"]

    def _drop_manager(self) -> None:
        manager = self._memory.pop("manager", None)
        self._memory.pop("started", None)
        if manager is not None:
            try:
                manager.close()
            except Exception as error:
                status.log(f"Closing the checkpoint manager: {error!r}")

    def _newest_started(self) -> int | None:
        """The newest step, one whose save is under way included; quick to answer."""
        if "started" not in self._memory:
            newest = self.latest_step
            if newest is None:
                return None
            self._memory["started"] = newest
        return self._memory["started"]

    def _warn_once(self, message: str) -> None:
        warned = self._memory.setdefault("warned", set())
        if message not in warned:
            warned.add(message)
            status.log_warning(message)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_memory_dict"}


def _is_standard(part: Any) -> bool:
    return isinstance(part, items.StandardCheckpointItem)


def _parts_on_disk(parts: dict[str, Any], folder: epath.Path) -> dict[str, Any]:
    """The parts that the checkpoint has; only the default one is indispensable."""
    stored = step_folders.item_names(folder)
    if items.DEFAULT_ITEM_NAME not in stored:
        raise FileNotFoundError(
            f"{folder} has no item {items.DEFAULT_ITEM_NAME!r}; it has "
            f"{', '.join(stored) or 'nothing'}."
        )
    for name in parts:
        if name not in stored:
            status.log_warning(f"{folder} has no {name!r}: it keeps its initial value.")
    return {name: part for name, part in parts.items() if name in stored}


def _free_arrays(part: Any) -> Any:
    """Only the specs stay; the memory is free for what is restored."""
    if not _is_standard(part) or part._as_tree() is None:
        return part
    specs = items.to_specs(part)
    for leaf in jax.tree.leaves(part):
        if isinstance(leaf, jax.Array) and not leaf.is_deleted():
            leaf.delete()
    return specs


def _forget_arrays(state: Any) -> Any:
    """Specs in the place of arrays that a failed restore may have freed."""
    parts = {n: _free_arrays(part) for n, part in items.split(state).items()}
    return items.join(state, parts)
