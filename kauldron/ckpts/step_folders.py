"""Which checkpoints a folder holds, seen from the outside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from etils import epath

CHECKPOINT_FOLDER_NAME = "checkpoints"
_STEP_FOLDER = re.compile(r"ckpt_(\d+)")
_TEMPORARY_MARK = ".orbax-checkpoint-tmp"
_DELETING_MARK = ".deleting"


def step_folder(root: epath.Path, step: int) -> epath.Path:
    """Folder of one checkpoint."""
    return root / f"ckpt_{step}"


def complete_steps(root: epath.Path) -> list[int]:
    """Steps of the checkpoints that were written to the end, ascending."""
    steps = []
    for path in _children(root):
        match = _STEP_FOLDER.fullmatch(path.name)
        if match and _is_complete(path):
            steps.append(int(match.group(1)))
    return sorted(steps)


def incomplete_folders(root: epath.Path) -> list[epath.Path]:
    """Folders named like a checkpoint that hold none."""
    return [
        path
        for path in _children(root)
        if _STEP_FOLDER.fullmatch(path.name) and not _is_complete(path)
    ]


def remove_leftovers(root: epath.Path) -> None:
    """Remove what a killed job left: half-written and half-deleted checkpoints."""
    for path in _children(root):
        if _TEMPORARY_MARK in path.name or path.name.endswith(_DELETING_MARK):
            path.rmtree(missing_ok=True)


def delete(root: epath.Path, step: int) -> None:
    """Remove a checkpoint so that no reader sees a part of it."""
    folder = step_folder(root, step)
    doomed = folder.parent / f"{folder.name}{_DELETING_MARK}"
    folder.rename(doomed)
    doomed.rmtree(missing_ok=True)


def read_metadata(folder: epath.Path) -> dict[str, Any]:
    """What orbax noted about a checkpoint; empty if it noted nothing."""
    try:
        return json.loads((folder / "_CHECKPOINT_METADATA").read_text())
    except (OSError, ValueError):
        return {}


def item_names(folder: epath.Path) -> list[str]:
    """Items that a checkpoint holds."""
    return [path.name for path in folder.iterdir() if path.is_dir()]


def _is_complete(folder: epath.Path) -> bool:
    """A committed checkpoint has at least one item, and a mark that it is done."""
    try:
        if not any(path.is_dir() for path in folder.iterdir()):
            return False
    except OSError:
        return False  # deleted meanwhile
    has_marker = (folder / "commit_success.txt").exists()
    return has_marker or bool(read_metadata(folder).get("commit_timestamp_nsecs"))


def _children(root: epath.Path) -> Iterable[epath.Path]:
    try:
        return sorted(root.iterdir(), key=lambda path: path.name)
    except OSError:
        return ()
