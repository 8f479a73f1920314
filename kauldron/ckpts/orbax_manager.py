"""The one place that talks to orbax's checkpoint manager."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import orbax.checkpoint as ocp
from etils import epath

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer

_SAVE_TIMEOUT_SECONDS = 1800


def open_manager(
    checkpointer: Checkpointer, root: epath.Path, parts: Mapping[str, Any]
) -> ocp.CheckpointManager:
    """A manager for checkpoints with these parts."""
    options = ocp.CheckpointManagerOptions(
        step_prefix="ckpt",
        create=True,
        enable_async_checkpointing=checkpointer.enable_async,
        async_options=ocp.AsyncOptions(timeout_secs=_SAVE_TIMEOUT_SECONDS),
        multiprocessing_options=checkpointer.multiprocessing_options
        or ocp.options.MultiprocessingOptions(),
        file_options=ocp.options.FileOptions(
            path_permission_mode=checkpointer.file_mode
        ),
        # We decide when to save.
        save_decision_policy=_Always(),
        preservation_policy=_preservation_policy(checkpointer),
        best_fn=checkpointer.metric_or_worst if checkpointer.tracks_metrics else None,
        best_mode=checkpointer.best_mode,
        lightweight_initialize=checkpointer.lightweight_initialize,
    )
    manager = ocp.CheckpointManager(
        root,
        options=options,
        item_names=tuple(parts),
        item_handlers={n: part.__kd_ocp_handlers__() for n, part in parts.items()},
    )
    _finish_before_exit(manager)
    return manager


def restore_part(part: Any, folder: epath.Path) -> Any:
    """Read one item."""
    with ocp.Checkpointer(part.__kd_ocp_handlers__()) as reader:
        value = reader.restore(folder, args=part.__kd_ocp_restore_args__())
    return part.__kd_ocp_restore_post__(value)


def stored_tree(folder: epath.Path) -> Any:
    """Shapes and dtypes of a stored tree; no data is read."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        metadata = reader.metadata(folder)
    stored = getattr(metadata, "item_metadata", metadata)
    if stored is None:
        raise OSError(f"{folder} is damaged: it does not say what it holds.")
    return stored.tree


def read_leaves(folder: epath.Path, tree: Any, wanted: Mapping[str, Any]) -> Any:
    """Read some leaves of a stored tree.

    Args:
      folder: Folder of the item.
      tree: `stored_tree(folder)`.
      wanted: From path (as in `structure.flatten`) to the spec to restore it as.

    Returns:
      The tree; leaves that are not wanted are `orbax.checkpoint.PLACEHOLDER`.
    """
    from kauldron.ckpts import structure

    leaves, treedef = jax.tree_util.tree_flatten(tree)
    paths = list(structure.flatten(tree))
    request = jax.tree_util.tree_unflatten(
        treedef, [wanted.get(path, ocp.PLACEHOLDER) for path in paths]
    )
    del leaves
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        return reader.restore(
            folder,
            args=ocp.args.PyTreeRestore(
                item=request,
                restore_args=ocp.checkpoint_utils.construct_restore_args(request),
            ),
        )


class _Always:
    """A save decision policy: yes."""

    def should_save(self, *args: Any, **kwargs: Any) -> bool:
        return True


def _preservation_policy(checkpointer: Checkpointer) -> Any:
    """What to keep: never less than the newest."""
    policies = ocp.checkpoint_managers
    newest = policies.LatestN(1)
    if checkpointer.preservation_policy is not None:
        kept = [newest, checkpointer.preservation_policy]
        return policies.AnyPreservationPolicy(kept)
    count = checkpointer.max_to_keep
    if count is None:
        return policies.LatestN(None)
    if checkpointer.best_metric_path is not None:
        best = policies.BestN(
            get_metric_fn=checkpointer.metric_or_worst,
            reverse=checkpointer.best_mode == "min",
            n=count,
            keep_checkpoints_without_metrics=False,
        )
        kept = [newest, best]
    else:
        kept = [policies.LatestN(max(count, 1))]
    if checkpointer.keep_period is not None:
        kept.append(policies.EveryNSteps(checkpointer.keep_period))
    if checkpointer.keep_time_interval is not None:
        seconds = int(checkpointer.keep_time_interval.total_seconds())
        kept.append(policies.EveryNSeconds(seconds))
    return policies.AnyPreservationPolicy(kept)


#
# Leaving the interpreter
#

_open_managers: weakref.WeakSet[ocp.CheckpointManager] = weakref.WeakSet()


def _finish_before_exit(manager: ocp.CheckpointManager) -> None:
    if not _open_managers:
        _register_at_exit(_wait_for_open_managers)
    _open_managers.add(manager)


def _wait_for_open_managers() -> None:
    for manager in list(_open_managers):
        manager.wait_until_finished()


def _register_at_exit(function: Callable[[], None]) -> None:
    """Before thread pools are torn down, which `atexit` alone is too late for."""
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)
