"""One save: started at once, written in the background, finished before exit."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from kauldron.ckpts import step_folders
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer

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
    """Copy the parts to the host and start to write them.

    Args:
      checkpointer: Whose options to use.
      folder: The folder to make; must not exist.
      parts: From name on disk to item.
      metrics: Values to store beside them.
      custom_metadata: A JSON mapping to store beside them.
      after_commit: Called in the background once the checkpoint is there.

    Returns:
      The save. The arrays of the parts may be given away.
    """
    handlers = {name: part.__kd_ocp_handlers__() for name, part in parts.items()}
    args = {name: part.__kd_ocp_save_args__() for name, part in parts.items()}
    if metrics is not None:
        name = step_folders.METRICS_ITEM_NAME
        handlers[name] = ocp.JsonCheckpointHandler(filename=name)
        args[name] = ocp.args.JsonSave(dict(metrics))
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
    # Folders are made at once: if that fails, `save` itself says so.
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
