"""Weights of another run, whole or in part, under other names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from etils import epath

from kauldron.ckpts import checksums, items, step_folders
from kauldron.ckpts.checkpointer import Checkpointer
from kauldron.ckpts.init_transforms import InitTransform
from kauldron.ckpts.mapped_loader import MappedLoader
from kauldron.ckpts.structure import LeafPath
from kauldron.konfig.immutabledict import ImmutableDict

_T = TypeVar("_T")
_SAME_NAMES = ImmutableDict({"params": "params", "collections": "collections"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialKauldronLoader(MappedLoader):
    """Loads sub-trees of a checkpoint into the initial state.

    Nothing is ever written to the other run's folder.

    Example:

    ```python
    cfg.init_transform = kd.ckpts.PartialKauldronLoader(
        workdir="/path/to/other/run",
        new_to_old={"params.encoder": "params.model.encoder"},
    )
    ```

    Attributes:
      workdir: Workdir of the *other* run.
      new_to_old: From path in the new state to path in the checkpoint. Paths below
        `opt_state` are loaded after the optimizer was initialised; with `step` among
        them, training goes on at the loaded step.
      step: Which checkpoint; -1 for the newest.
      lightweight_initialize: Accepted for older configs; opening is always light.
    """

    workdir: epath.PathLike
    new_to_old: Mapping[str, str] = _SAME_NAMES
    step: int = -1
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_step(self.step)

    def _open(self, *, is_continued: bool) -> _StoredItem:
        run = Checkpointer(
            workdir=epath.Path(self.workdir), save_interval_steps=1, create=False
        )
        last_step = self.__dict__.get("_last_step", self.step)
        step = run.find_step(last_step if is_continued else self.step)
        object.__setattr__(self, "_last_step", step)
        return _StoredItem(step_folders.step_folder(run.folder, step))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_last_step"}


@dataclasses.dataclass(frozen=True)
class _StoredItem:
    """The train state of a checkpoint, as a source of weights."""

    folder: epath.Path

    @property
    def name(self) -> str:
        return str(self.folder)

    @functools.cached_property
    def tree(self) -> Any:
        from kauldron.ckpts import tree_files

        checksums.check(self.folder)
        return tree_files.stored_tree(self.folder / items.DEFAULT_ITEM_NAME)

    def read(self, wanted: Mapping[LeafPath, Any]) -> Mapping[LeafPath, Any]:
        from kauldron.ckpts import tree_files

        item_folder = self.folder / items.DEFAULT_ITEM_NAME
        return tree_files.read_leaves(item_folder, self.tree, wanted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimpleCheckpointLoader(InitTransform):
    """Loads parameters and collections of another run, unchanged.

    Attributes:
      workdir: Workdir of the *other* run.
      step: Which checkpoint; -1 for the newest.
      load_opt_state: Whether to load the optimizer state too.
    """

    workdir: epath.PathLike
    step: int = -1
    load_opt_state: bool = False

    def __post_init__(self) -> None:
        _check_step(self.step)

    def transform(self, state: _T) -> _T:
        return self._loader.transform(state)

    def transform_after_optimizer(self, state: _T) -> _T:
        return self._loader.transform_after_optimizer(state)

    def check(self, state: Any = None) -> None:
        self._loader.check(state)

    @functools.cached_property
    def _loader(self) -> PartialKauldronLoader:
        names = dict(_SAME_NAMES)
        if self.load_opt_state:
            names["opt_state"] = "opt_state"
        return PartialKauldronLoader(
            workdir=self.workdir, step=self.step, new_to_old=names
        )


def _check_step(step: int) -> None:
    if step < -1:
        raise ValueError(f"step must be a step or -1 for the newest, got {step}.")
