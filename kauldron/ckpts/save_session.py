"""The changing side of a checkpointer: the saves of this process."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from kauldron import status
from kauldron.ckpts import items, retention, step_folders
from kauldron.errors import error_prefix

if TYPE_CHECKING:
    from kauldron.ckpts.checkpointer import Checkpointer
    from kauldron.ckpts.orbax_io import PendingSave

_MOST_ATTEMPTS = 3
_NOT_PASSING = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
)


class SaveSession:
    """What a checkpointer did in this process.

    Attributes:
      unreadable: Steps of checkpoints that turned out to be damaged. They count as not
        there, and make room when their step is saved again.
      has_failed: Whether a save went wrong.
    """

    def __init__(self, checkpointer: Checkpointer):
        self.unreadable: set[int] = set()
        self.has_failed = False
        self._checkpointer = checkpointer
        self._pending: tuple[int, PendingSave] | None = None
        self._newest: int | None = None
        self._has_made_folder = False
        self._infos: dict[int, retention.StepInfo] = {}
        self._warned: set[str] = set()

    def newest_step(self) -> int | None:
        """Return the newest step, including one being saved; this is quick."""
        if self._newest is None:
            known = [self._checkpointer.latest_step]
            known += [self._pending[0]] if self._pending is not None else []
            self._newest = max((s for s in known if s is not None), default=None)
        return self._newest

    def forget_listing(self) -> None:
        """Look at the folder again when next asked."""
        self._newest = None

    def warn_once(self, message: str, *, about: str | None = None) -> None:
        """Log a warning, once for each subject."""
        about = about or message
        if about not in self._warned:
            self._warned.add(about)
            status.log_warning(message)

    #
    # Saving
    #

    def save(
        self,
        state: Any,
        step: int,
        *,
        metrics: Mapping[str, Any] | None,
        custom_metadata: Mapping[str, Any],
    ) -> bool:
        """Start a save; return whether one was started."""
        self.finish()
        root = self._checkpointer.folder
        if step not in self.unreadable and step_folders.is_complete(root, step):
            return False
        parts = items.split(state)
        json.dumps(custom_metadata)  # fail now rather than in the background
        try:
            save = self._start(parts, step, metrics, custom_metadata)
        except (OSError, jax.errors.JaxRuntimeError) as error:
            self._on_failure(step, error)
            return False
        self.unreadable.discard(step)
        self._pending = (step, save)
        self.forget_listing()
        return self._checkpointer.enable_async or self.finish()

    @property
    def is_saving(self) -> bool:
        """Whether files are being written."""
        return self._pending is not None and self._pending[1].is_running

    def finish(self) -> bool:
        """Wait for the save under way; raise (or log) what went wrong and return `False`."""
        if self._pending is None:
            return True
        step, save = self._pending
        try:
            save.wait()
        except Exception as error:
            self._pending = None
            self._on_failure(step, error)
            return False
        self._pending = None
        return True

    def change(self, step: int, how: Any, values: Mapping[str, Any]) -> None:
        """Change a checkpoint, and delete what is then no longer kept."""
        self.finish()
        root = self._checkpointer.folder
        if not self._is_lead():
            return
        how(step_folders.step_folder(root, step), values)
        self._infos[step] = retention.read_info(root, step)
        self._delete_old(root)
        self.forget_listing()

    def clean_up(self, *, delete_old: bool) -> None:
        """Finish what a killed process was about to remove."""
        root = self._checkpointer.folder
        if self._is_lead() and root.exists():
            _try(step_folders.remove_leftovers, root)
            for step in step_folders.named_steps(root):
                # Do not wait until its step is saved again: it may never be, if it was
                # saved only because the run was interrupted.
                if step in self.unreadable or not step_folders.is_complete(root, step):
                    _try(self._put_aside, step)
            if delete_old:
                self._delete_old(root)

    def delete(self, step: int) -> None:
        """Remove a checkpoint."""
        if self._is_lead():
            step_folders.delete(self._checkpointer.folder, step)
        self._infos.pop(step, None)
        self.forget_listing()

    def _on_failure(self, step: int, error: Exception) -> None:
        root = self._checkpointer.folder
        self.has_failed = True
        self._has_made_folder = False
        self.forget_listing()
        if self._is_lead():
            _try(step_folders.remove_temporary, root, step)
        prefix = f"Saving {root}/ckpt_{step} failed: "
        if self._checkpointer.on_save_error == "warn":
            status.log_warning(f"{prefix}{error}. Training goes on without it.")
            return
        if isinstance(error, OSError):  # the message tells all; a traceback would not
            error = error.with_traceback(None)
            error.__context__ = error.__cause__ = None
        with error_prefix(prefix):
            raise error

    def _start(
        self,
        parts: Mapping[str, Any],
        step: int,
        metrics: Mapping[str, Any] | None,
        custom_metadata: Mapping[str, Any],
    ) -> PendingSave:
        from kauldron.ckpts import orbax_io

        attempt = 0
        while True:
            attempt += 1
            try:
                if self._is_lead():
                    self._make_room(step)
                return orbax_io.start_save(
                    self._checkpointer,
                    step_folders.step_folder(self._checkpointer.folder, step),
                    parts,
                    metrics=metrics,
                    custom_metadata=custom_metadata,
                    after_commit=lambda: self._after_commit(step),
                )
            except (OSError, jax.errors.JaxRuntimeError) as error:
                if attempt == _MOST_ATTEMPTS or not _may_pass(error):
                    raise
                if attempt == 1:
                    status.log_warning(f"Saving step {step}: {error}. Trying again.")
                _try(step_folders.remove_temporary, self._checkpointer.folder, step)
                time.sleep(attempt)

    def _make_room(self, step: int) -> None:
        """Make the folder, and move aside what it holds under this name."""
        root = self._checkpointer.folder
        if self._has_made_folder and not root.exists():
            raise FileNotFoundError(errno.ENOENT, f"{root} was removed")
        if not self._has_made_folder:
            root.mkdir(parents=True, exist_ok=True, mode=self._checkpointer.file_mode)
            _try(step_folders.remove_leftovers, root)
            self._has_made_folder = True
        if step_folders.is_taken(step_folders.step_folder(root, step)):
            self._put_aside(step)

    def _put_aside(self, step: int) -> None:
        aside = step_folders.put_aside(self._checkpointer.folder, step)
        status.log_warning(f"Checkpoint {step} cannot be read; moved to {aside}.")

    #
    # In the background, once a checkpoint is there
    #

    def _after_commit(self, step: int) -> None:
        root = self._checkpointer.folder
        folder = step_folders.step_folder(root, step)
        if self._is_lead():
            step_folders.write_checksums(folder)
        if self._checkpointer.checksum:
            step_folders.write_sums(folder)
        if self._is_lead():
            self._infos[step] = retention.read_info(root, step)
            self._delete_old(root)

    def _delete_old(self, root: epath.Path) -> None:
        for step in self._steps_to_delete(root):
            _try(step_folders.delete, root, step)

    def _steps_to_delete(self, root: epath.Path) -> list[int]:
        reads = retention.needs_metadata(self._checkpointer)
        steps = [
            step
            for step in step_folders.complete_steps(root)
            if step not in self.unreadable
        ]
        for step in steps:
            # A planned checkpoint is never an extra one: no need to read its metadata.
            is_told = not reads and self._checkpointer.is_planned(step)
            if step not in self._infos and not is_told:
                self._infos[step] = retention.read_info(root, step)
        return retention.steps_to_delete(
            retention.policies_of(self._checkpointer),
            [self._infos.get(step, retention.StepInfo(step)) for step in steps],
        )

    def _is_lead(self) -> bool:
        options = self._checkpointer.multiprocessing_options
        primary = 0 if options is None else options.primary_host
        return primary is None or jax.process_index() == primary


def _may_pass(error: Exception) -> bool:
    """Return whether trying again can help."""
    if isinstance(error, OSError):
        # One of several processes that tries again alone would wait for the others.
        return jax.process_count() == 1 and error.errno not in _NOT_PASSING
    return "DEADLINE_EXCEEDED" in str(error)


def _try(function: Any, *args: Any) -> None:
    """Clean up if possible: what stays is removed by the next start."""
    try:
        function(*args)
    except OSError as error:
        status.log_warning(f"Cleaning up failed: {error}. The next start tries again.")
