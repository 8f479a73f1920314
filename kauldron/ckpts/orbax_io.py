"""What is written and read with orbax, which is imported only then."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from kauldron import status
from kauldron.ckpts import step_folders, structure
from kauldron.ckpts.structure import LeafPath


def _is_not_of_a_save(record: logging.LogRecord) -> bool:
    if not record.exc_info:
        return True
    frames = traceback.extract_tb(record.exc_info[2])
    # Errors of tensorstore have no traceback: they were never raised in Python.
    return bool(frames) and not any("orbax" in frame.filename for frame in frames)


# When a save fails, asyncio logs a traceback for each array besides our message.
logging.getLogger("asyncio").addFilter(_is_not_of_a_save)

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer


def tree_handler() -> ocp.PyTreeCheckpointHandler:
    """Return a handler that saves trees without compiling anything.

    By default, orbax lets every device that has a copy of an array save a slice of it,
    and slicing is compiled for each shape and device: minutes for a large model on
    eight devices. Here the first copy is saved whole.
    """
    handlers = ocp.type_handlers
    arrays = _HandlerOfArraysAnywhere(
        use_replica_parallel=False,
        enable_write_sharding_file=False,
        # Records the types of random keys; there is no other public way to get it.
        array_metadata_store=ocp.v1.options.ArrayOptions.Saving().array_metadata_store,
    )
    registry = handlers.create_type_handler_registry(
        (int, handlers.ScalarHandler()),
        (float, handlers.ScalarHandler()),
        (np.ndarray, handlers.NumpyHandler()),
        (jax.Array, arrays),
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


class _HandlerOfArraysAnywhere(ocp.type_handlers.ArrayHandler):
    """Saves arrays so that orbax loads them as numpy arrays, unless told otherwise.

    What is noted to be a `jax.Array` would go back to the devices that it was saved
    from, and could not be loaded where there are others.
    """

    def typestr(self) -> str:
        return ocp.type_handlers.NumpyHandler().typestr()


def as_saved(tree: Any) -> Any:
    """Return the tree with arrays in place of what can become one.

    Raises:
      ValueError: A leaf is neither an array nor a number; the message has its path.
    """
    leaves = structure.flatten(tree)
    arrays = {path: _as_saved(path, leaf) for path, leaf in leaves.items()}
    return structure.with_leaves(tree, arrays)


def _as_saved(path: LeafPath, leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | jax.Array):
        return leaf
    if hasattr(leaf, "__array__"):
        return np.asarray(leaf)
    if isinstance(leaf, int | float):
        return leaf
    raise ValueError(
        f"{structure.show(path)} has the type {type(leaf).__name__}, and checkpoints "
        "hold only arrays and numbers: take it out of the state."
    )


def stored_tree(folder: epath.Path) -> Any:
    """Return shapes and dtypes of a stored tree; no data is read."""
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as handler:
        return handler.metadata(folder).tree


def read_leaves(
    folder: epath.Path, tree: Any, wanted: Mapping[LeafPath, Any]
) -> dict[LeafPath, Any]:
    """Read some leaves of a `stored_tree`, in one pass, each like the array wanted."""
    if not wanted:
        return {}
    # Orbax wants the whole structure, with placeholders for what is not to be read.
    requests = {
        path: _as_request(wanted[path]) if path in wanted else ocp.PLACEHOLDER
        for path in structure.flatten(tree)
    }
    request = structure.with_leaves(tree, requests)
    args = ocp.args.PyTreeRestore(
        item=request, restore_args=ocp.checkpoint_utils.construct_restore_args(request)
    )
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as handler:
        leaves = structure.flatten(handler.restore(folder, args=args))
    return {path: leaves[path] for path in wanted}


def as_requests(tree: Any) -> Any:
    """Return the tree with specs in place of arrays: all that reading needs."""
    return jax.tree.map(_as_request, tree)


def anywhere(stored: Any) -> Any:
    """Request a leaf as it is stored: numbers, or arrays on the first device."""
    if isinstance(stored, ocp.metadata.ScalarMetadata):
        return np.zeros((), stored.dtype).item()
    return jax.ShapeDtypeStruct(stored.shape, stored.dtype)


def _as_request(leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        return np.asarray(leaf)
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "dtype"):
        return leaf
    return jax.ShapeDtypeStruct(
        structure.stored_shape(leaf),
        np.uint32 if structure.is_random_key(leaf) else leaf.dtype,
        sharding=getattr(leaf, "sharding", None) or _first_device(),
    )


def _first_device() -> jax.sharding.Sharding:
    return jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


#
# Saves under way
#


_SAVE_TIMEOUT_SECONDS = 1800


class PendingSave:
    """A save whose files are being written.

    Each has an orbax checkpointer of its own, so that nothing of a failed one is left.

    Attributes:
      folder: Where the checkpoint will be.
    """

    def __init__(
        self,
        folder: epath.Path,
        saver: ocp.AsyncCheckpointer,
        after_commit: Callable[[], None],
    ):
        self.folder = folder
        self._saver = saver
        self._after_commit = after_commit
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._finish, name="kauldron-save")
        _unfinished.add(self)
        self._thread.start()

    def _finish(self) -> None:
        try:
            self._saver.close()  # waits, and raises what went wrong
            self._after_commit()
        except BaseException as error:
            self._error = error

    @property
    def is_running(self) -> bool:
        """Whether the checkpoint is still being written."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the checkpoint is there; raises what went wrong."""
        self._thread.join()
        _unfinished.discard(self)
        if self._error is not None:
            raise self._error


def start_save(
    checkpointer: Checkpointer,
    folder: epath.Path,
    parts: Mapping[str, Any],
    *,
    metrics: Mapping[str, Any] | None,
    custom_metadata: Mapping[str, Any],
    after_commit: Callable[[], None],
) -> PendingSave:
    """Copy the parts to the host and start to write them to a folder that is not there.

    The arrays of the parts may be donated once this returns. `after_commit` is called
    in the background when the checkpoint is there.
    """
    handlers = {name: part.__kd_ocp_handlers__() for name, part in parts.items()}
    args = {name: part.__kd_ocp_save_args__() for name, part in parts.items()}
    if metrics is not None:
        name = step_folders.METRICS_ITEM_NAME
        handlers[name] = ocp.JsonCheckpointHandler(filename=name)
        args[name] = ocp.args.JsonSave(dict(metrics))
    _let_failures_be_told_once()
    saver = _make_saver(checkpointer, handlers)
    try:
        with jax.transfer_guard("allow"):
            saver.save(
                folder,
                args=ocp.args.Composite(**args),
                custom_metadata=dict(custom_metadata),
            )
    except BaseException:
        with contextlib.suppress(Exception):
            saver.close()
        raise
    return PendingSave(folder, saver, after_commit)


def _make_saver(
    checkpointer: Checkpointer, handlers: Mapping[str, Any]
) -> ocp.AsyncCheckpointer:
    # Folders are created at once, so that `save` itself raises if that fails.
    async_options = ocp.AsyncOptions(
        timeout_secs=_SAVE_TIMEOUT_SECONDS, create_directories_asynchronously=False
    )
    processes = (
        checkpointer.multiprocessing_options or ocp.options.MultiprocessingOptions()
    )
    files = ocp.options.FileOptions(path_permission_mode=checkpointer.file_mode)
    handler = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(
            async_options=async_options,
            multiprocessing_options=processes,
            file_options=files,
        ),
        **handlers,
    )
    return ocp.AsyncCheckpointer(
        handler,
        async_options=async_options,
        multiprocessing_options=processes,
        file_options=files,
    )


#
# A failed save is reported once, by whoever waits for it
#


@functools.cache
def _let_failures_be_told_once() -> None:
    """Hide the tracebacks that the threads of a failed save print themselves."""
    logging.getLogger("absl").addFilter(_is_not_a_traceback_of_a_save)
    sys.unraisablehook = functools.partial(_print_unless_late, sys.unraisablehook)
    never_awaited = r"coroutine '.*Handler.async_save' was never awaited"
    warnings.filterwarnings("ignore", never_awaited, category=RuntimeWarning)


def _is_not_a_traceback_of_a_save(record: logging.LogRecord) -> bool:
    is_of_orbax = f"{os.sep}orbax{os.sep}" in record.pathname
    return not (record.exc_info and is_of_orbax)


def _print_unless_late(show: Callable[[Any], Any], unraisable: Any) -> None:
    """Hide errors of writes that end after another one has failed the save."""
    is_late = str(unraisable.exc_value) == "Event loop is closed"
    if not is_late or threading.current_thread() is threading.main_thread():
        show(unraisable)


#
# Leaving the interpreter
#

_unfinished: set[PendingSave] = set()


def _finish_all() -> None:
    for save in list(_unfinished):
        try:
            save.wait()
        except BaseException as error:
            status.log_error(f"Saving {save.folder} failed: {error!r}")


# Writing needs thread pools, which are closed before `atexit` functions are called.
getattr(threading, "_register_atexit", atexit.register)(_finish_all)
