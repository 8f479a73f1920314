"""Whose checkpoints are evaluated: those of the trainer's own run, or of an earlier one."""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import ckpts
from kauldron.evals import stored_state
from kauldron.train import workdir_files
from kauldron.utils import constants

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
        """Steps of the complete checkpoints, ascending."""
        self.checkpointer.reload()
        return self.checkpointer.all_steps

    def is_complete(self) -> bool:
        """Whether training has ended."""
        return (self.workdir / workdir_files.TRAIN_COMPLETE_FILENAME).exists()

    def awaited_file(self) -> epath.Path | None:
        """What must appear before a checkpoint can be loaded; `None` if all is there."""
        return None

    @abc.abstractmethod
    def load(self, step: int, *, workdir: epath.Path | None = None) -> TrainState:
        """The state of a checkpoint.

        Args:
          step: Its step.
          workdir: Where a copy of the checkpoint is; by default the run itself.
        """


class OwnRun(CheckpointSource):
    """The run that the trainer itself describes, perhaps in another process just now."""

    def __init__(self, trainer: Trainer, *, with_optimizer: bool):
        super().__init__(trainer.workdir, trainer.checkpointer)
        self._trainer = trainer
        self._with_optimizer = with_optimizer

    def awaited_file(self) -> epath.Path | None:
        path = self.workdir / constants.ELEMENT_SPEC_FILENAME
        return None if path.exists() else path

    def load(self, step: int, *, workdir: epath.Path | None = None) -> TrainState:
        if workdir is not None:
            state = stored_state.load_state(self._specs, workdir=workdir, step=step)
        else:
            state = self.checkpointer.restore(self._specs, step=step)
        if int(state.step) != step:
            raise ValueError(
                f"It holds the state of step {int(state.step)}: was it renamed?"
            )
        return state

    @functools.cached_property
    def _specs(self) -> TrainState:
        return stored_state.state_specs(
            self._trainer,
            stored_state.read_element_spec(self.workdir),
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
