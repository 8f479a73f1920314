"""What a process of standalone evaluators has done, for its next start."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import status
from kauldron.evals.run_strategies import job_groups
from kauldron.files import describe_holder, file_lock, holder, write_atomically

if TYPE_CHECKING:
    from kauldron.train import Trainer

FOLDER_PREFIX = "_eval_"
PROGRESS_FILENAME = "progress.json"
LOCK_FILENAME = "eval.lock"
_LONGEST_LABEL = 100


def group_folder(trainer: Trainer, names: list[str]) -> epath.Path:
    """Return the folder of the process that runs these evaluators."""
    strategies = {name: evaluator.run for name, evaluator in trainer.evals.items()}
    return trainer.workdir / f"{FOLDER_PREFIX}{_group_label(strategies, names)}"


def _group_label(strategies: Mapping[str, Any], names: list[str]) -> str:
    """Return the job group, if these are all its members; or the names."""
    label = "+".join(names)
    for group, members in job_groups(strategies).items():
        if sorted(members) == sorted(names):
            label = group
    if len(label) > _LONGEST_LABEL:
        return hashlib.sha256(label.encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+-]", "_", label)


class EvalProgress:
    """The last step that each evaluator has finished, in a file.

    Attributes:
      folder: Where the file is.
    """

    def __init__(self, folder: epath.Path, names: list[str]):
        self.folder = folder
        self._path = folder / PROGRESS_FILENAME
        # Evaluators may have run in other groups before.
        self._done = dict.fromkeys(names, -1)
        for path in sorted(folder.parent.glob(f"{FOLDER_PREFIX}*/{PROGRESS_FILENAME}")):
            for name, step in _read(path).items():
                if name in self._done:
                    self._done[name] = max(step, self._done[name])

    def last_step(self, name: str) -> int:
        """Return the last step that the evaluator has finished; -1 if none."""
        return self._done[name]

    def finish(self, name: str, step: int) -> None:
        """Note that the values of an evaluator at `step` are on disk."""
        self._done[name] = step
        if status.is_lead_host:
            done = {name: step for name, step in self._done.items() if step >= 0}
            write_atomically(self._path, json.dumps(done))


def _read(path: epath.Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text())
        return {str(name): int(step) for name, step in content.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        status.log_warning(f"{path} cannot be read and is ignored: {error!r}")
        return {}


@contextlib.contextmanager
def evaluation_lock(folder: epath.Path, names: list[str]) -> Iterator[None]:
    """Keep other processes from running the same evaluators for the time of the block.

    Args:
      folder: Folder of the group; folders of other groups are beside it.
      names: The evaluators.
    """
    problem = f"Another process evaluates {', '.join(names)} in {folder.parent}"
    advice = "wait until it is done"
    lock = file_lock(
        folder / LOCK_FILENAME, problem=problem, advice=advice, evaluators=names
    )
    with lock:
        for path in folder.parent.glob(f"{FOLDER_PREFIX}*/{LOCK_FILENAME}"):
            if path.parent.name == folder.name:
                continue
            other = holder(path) or {}
            shared = [name for name in names if name in other.get("evaluators", ())]
            if shared:
                raise RuntimeError(
                    f"Another process evaluates {', '.join(shared)} in {folder.parent}: "
                    f"{describe_holder(path)}. Stop it, or {advice}."
                )
        yield
