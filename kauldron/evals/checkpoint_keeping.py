"""Copies of checkpoints, safe from the clean-up of the training job."""

from __future__ import annotations

import os
import shutil

from etils import epath

from kauldron.ckpts import step_folders


class KeptCheckpoints:
    """Copies below `<folder>/checkpoints`, at most a few at a time.

    On a local disk a copy is made of hard links and takes no space.
    """

    def __init__(self, folder: epath.Path):
        self.workdir = folder
        self._root = folder / step_folders.CHECKPOINT_FOLDER_NAME

    def steps(self) -> list[int]:
        """Steps of the copies, ascending."""
        return step_folders.complete_steps(self._root)

    def keep(self, source: epath.Path, step: int) -> None:
        """Copy the checkpoint of `step` from the folder `source`.

        Raises:
          OSError: It was deleted before it was copied.
        """
        if step in self.steps():
            return
        kept = step_folders.step_folder(self._root, step)
        partial = self._root / f"{kept.name}.partial"
        partial.rmtree(missing_ok=True)
        kept.rmtree(missing_ok=True)
        _copy_folder(step_folders.step_folder(source, step), partial)
        partial.rename(kept)
        if step not in self.steps():
            raise FileNotFoundError(f"Checkpoint {step} was deleted from {source}.")

    def drop(self) -> None:
        """Delete all copies."""
        self._root.rmtree(missing_ok=True)


def _copy_folder(source: epath.Path, target: epath.Path) -> None:
    if "://" in str(source) or "://" in str(target):
        target.mkdir(parents=True)
        for path in source.iterdir():
            below = target / path.name
            _copy_folder(path, below) if path.is_dir() else path.copy(below)
        return
    shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
