"""What standalone evaluations read and write: checkpoints of a run, and their progress."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import ckpts, status
from kauldron.ckpts import step_folders
from kauldron.evals.run_strategies import job_groups
from kauldron.files import describe_holder, file_lock, holder, write_atomically
from kauldron.train import trainer_fields
from kauldron.train.run import workdir_files

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState


class CheckpointSource(abc.ABC):
    """A run whose checkpoints can be listed and loaded. Never writes to its folder.

    Attributes:
      workdir: Folder of the run.
      checkpointer: Lists its checkpoints.
    """

    def __init__(self, workdir: epath.Path, checkpointer: ckpts.BaseCheckpointer):
        self.workdir = workdir
        self.checkpointer = checkpointer

    @property
    def checkpoint_folder(self) -> epath.Path:
        """Where the checkpoints are."""
        return getattr(self.checkpointer, "folder", self.workdir)

    def steps(self) -> list[int]:
        """Return the steps of the complete checkpoints, ascending."""
        self.checkpointer.reload()
        return self.checkpointer.all_steps

    def is_complete(self) -> bool:
        """Return whether training has ended."""
        return (self.workdir / workdir_files.TRAIN_COMPLETE_FILENAME).exists()

    def awaited_file(self) -> epath.Path | None:
        """Return the file to wait for before loading; `None` if all is there."""
        return None

    @abc.abstractmethod
    def load(self, step: int, *, workdir: epath.Path | None = None) -> TrainState:
        """Return the state of a checkpoint; `workdir` is where a copy of it is."""


class OwnRun(CheckpointSource):
    """The trainer's own run, which another process may be training right now."""

    def __init__(self, trainer: Trainer, *, with_optimizer: bool):
        super().__init__(trainer.workdir, trainer.checkpointer)
        self._trainer = trainer
        self._with_optimizer = with_optimizer

    def awaited_file(self) -> epath.Path | None:
        path = self.workdir / workdir_files.ELEMENT_SPEC_FILENAME
        return None if path.exists() else path

    def load(self, step: int, *, workdir: epath.Path | None = None) -> TrainState:
        if workdir is not None:
            state = load_state(self._specs, workdir=workdir, step=step)
        else:
            state = self.checkpointer.restore(self._specs, step=step)
        if int(state.step) != step:
            raise ValueError(
                f"It holds the state of step {int(state.step)}: was it renamed?"
            )
        return state

    @functools.cached_property
    def _specs(self) -> TrainState:
        return trainer_fields.state_specs(
            self._trainer,
            element_spec=workdir_files.read_element_spec(self.workdir),
            with_optimizer=self._with_optimizer,
        )


class EarlierRun(CheckpointSource):
    """The run that an evaluation-only trainer takes its weights from."""

    def __init__(self, trainer: Trainer):
        workdir = getattr(trainer.init_transform, "workdir", None)
        if workdir is None:
            raise ValueError(
                "To follow the checkpoints of an earlier run, `cfg.init_transform` must "
                "have a `workdir`, as `kd.ckpts.PartialKauldronLoader` has; it is "
                f"{type(trainer.init_transform).__name__}."
            )
        workdir = epath.Path(workdir)
        reader = ckpts.Checkpointer(
            workdir=workdir, save_interval_steps=1, create=False
        )
        super().__init__(workdir, reader)
        self._trainer = trainer

    def load(self, step: int, *, workdir: epath.Path | None = None) -> TrainState:
        transform: Any = dataclasses.replace(
            self._trainer.init_transform,  # type: ignore[type-var]
            step=step,
            workdir=workdir or self.workdir,
        )
        state = transform.transform(self._initial_state)
        return transform.transform_after_optimizer(state)

    @functools.cached_property
    def _initial_state(self) -> TrainState:
        return self._trainer.init_state(skip_transforms=True)


def load_state(specs: TrainState, *, workdir: epath.PathLike, step: int) -> TrainState:
    """Return the state of a checkpoint.

    Args:
      specs: What to read; where `opt_state` is `None`, it is left alone.
      workdir: Folder of the run.
      step: Which checkpoint; -1 for the newest.
    """
    reader = ckpts.Checkpointer(
        workdir=epath.Path(workdir), save_interval_steps=1, create=False
    )
    return reader.restore(specs, step=step)


#
# Copies of checkpoints, safe from the clean-up of the training job
#


class KeptCheckpoints:
    """Copies below `<folder>/checkpoints`, at most a few at a time.

    On a local disk a copy is made of hard links and takes no space.
    """

    def __init__(self, folder: epath.Path):
        self.workdir = folder
        self._root = folder / step_folders.CHECKPOINT_FOLDER_NAME

    def steps(self) -> list[int]:
        """Return the steps of the copies, ascending."""
        return step_folders.complete_steps(self._root)

    def keep(self, source: epath.Path, step: int) -> None:
        """Copy the checkpoint of `step` from the folder `source`."""
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


#
# What a process has finished, for its next start
#


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
    """Keep other processes from running the same evaluators inside the block.

    The folders of other groups are beside that of this one.
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
