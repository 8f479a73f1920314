"""Weights of another run, whole or in part, under other names."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from etils import epath

from kauldron import kontext
from kauldron.ckpts import items, step_folders, structure
from kauldron.ckpts.checkpointer import Checkpointer
from kauldron.ckpts.init_transforms import InitTransform
from kauldron.konfig.immutabledict import ImmutableDict

_T = TypeVar("_T")
_SAME_NAMES = ImmutableDict({"params": "params", "collections": "collections"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialKauldronLoader(InitTransform):
    """Loads sub-trees of a checkpoint into the initial state.

    Only what is needed is read, straight to the sharding and dtype of the state.
    Nothing is ever written to the other run's folder.

    Attributes:
      workdir: Workdir of the *other* run.
      new_to_old: From path in the new state to path in the checkpoint. Paths below
        `opt_state` are loaded after the optimizer was initialised.
      step: Which checkpoint; -1 for the newest.
      ignore_model_keys: Globs of what may be missing in the checkpoint, and keeps its
        initial value.
      ignore_restored_keys: Globs of what may be in the checkpoint only.
      lightweight_initialize: Accepted for older configs; opening is always light.
    """

    workdir: epath.PathLike
    new_to_old: Mapping[str, str] = _SAME_NAMES
    step: int = -1
    ignore_model_keys: tuple[str, ...] = ()
    ignore_restored_keys: tuple[str, ...] = ()
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "new_to_old", ImmutableDict(self.new_to_old))
        for name in ("ignore_model_keys", "ignore_restored_keys"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def transform(self, state: _T) -> _T:
        return self._load(state, optimizer=False)

    def transform_after_optimizer(self, state: _T) -> _T:
        return self._load(state, optimizer=True)

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _load(self, state: Any, *, optimizer: bool) -> Any:
        entries = {
            new: old
            for new, old in self.new_to_old.items()
            if (kontext.Path.from_str(new).parts[:1] == ("opt_state",)) == optimizer
        }
        if not entries:
            return state
        from kauldron.ckpts import orbax_manager

        folder = self._item_folder()
        tree = orbax_manager.stored_tree(folder)
        stored = structure.flatten(tree)
        plan: dict[str, dict[str, str]] = {}
        wanted: dict[str, Any] = {}
        for new, old in entries.items():
            target = structure.flatten(kontext.get_by_path(state, new))
            plan[new] = self._match(new, old, target, stored, folder)
            specs = items.to_specs(target)
            wanted |= {source: specs[leaf] for leaf, source in plan[new].items()}
        values = structure.flatten(orbax_manager.read_leaves(folder, tree, wanted))
        for new, leaves in plan.items():
            subtree = kontext.get_by_path(state, new)
            loaded = {leaf: values[source] for leaf, source in leaves.items()}
            state = kontext.replace_by_path(
                state, new, structure.with_leaves(subtree, loaded)
            )
        return state

    def _item_folder(self) -> epath.Path:
        checkpointer = Checkpointer(
            workdir=epath.Path(self.workdir), save_interval_steps=1, create=False
        )
        step = checkpointer.latest_step if self.step == -1 else self.step
        if step is None:
            raise FileNotFoundError(f"There is no checkpoint in {checkpointer.folder}.")
        folder = step_folders.step_folder(
            checkpointer.folder, checkpointer._existing_step(step)
        )
        return folder / items.DEFAULT_ITEM_NAME

    def _match(
        self,
        new: str,
        old: str,
        target: Mapping[str, Any],
        stored: Mapping[str, Any],
        folder: epath.Path,
    ) -> dict[str, str]:
        """From leaf of the new sub-tree to path in the checkpoint."""
        old_name = structure.normalize(old)
        below = {
            _below(path, old_name): path
            for path in stored
            if path == old_name or path.startswith(f"{old_name}.")
        }
        if not below and target:
            close = difflib.get_close_matches(old_name, stored, n=3)
            raise KeyError(
                f"{folder} has nothing at {old!r}."
                + (f" Close: {', '.join(close)}." if close else "")
            )
        matched = {leaf: below[leaf] for leaf in target if leaf in below}
        self._complain(
            [leaf for leaf in target if leaf not in below],
            [leaf for leaf in below if leaf not in target],
            new=new,
            old=old,
            folder=folder,
        )
        structure.check_fits(
            {leaf: target[leaf] for leaf in matched},
            {leaf: stored[path] for leaf, path in matched.items()},
            where=f"{old!r} in {folder}, loaded to {new!r},",
        )
        return matched

    def _complain(
        self,
        only_model: list[str],
        only_stored: list[str],
        *,
        new: str,
        old: str,
        folder: epath.Path,
    ) -> None:
        only_model = _not_matching(only_model, new, self.ignore_model_keys)
        only_stored = _not_matching(only_stored, old, self.ignore_restored_keys)
        messages = []
        if only_model:
            messages.append(
                f"only in the model (allow with `ignore_model_keys`): "
                f"{', '.join(f'{new}.{leaf}' for leaf in only_model)}"
            )
        if only_stored:
            messages.append(
                "only in the checkpoint (allow with `ignore_restored_keys`): "
                f"{', '.join(f'{old}.{leaf}' for leaf in only_stored)}"
            )
        if messages:
            raise ValueError(
                f"{old!r} in {folder} does not fit {new!r}: {'; '.join(messages)}."
            )


def _below(path: str, root: str) -> str:
    return path[len(root) :].lstrip(".")


def _not_matching(leaves: list[str], root: str, globs: tuple[str, ...]) -> list[str]:
    def is_ignored(leaf: str) -> bool:
        return any(
            kontext.path_matches(path, glob)
            for glob in globs
            for path in (leaf, f"{structure.normalize(root)}.{leaf}")
        )

    return [leaf for leaf in leaves if not is_ignored(leaf)]


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

    def transform(self, state: _T) -> _T:
        return self._loader().transform(state)

    def transform_after_optimizer(self, state: _T) -> _T:
        return self._loader().transform_after_optimizer(state)

    def _loader(self) -> PartialKauldronLoader:
        names = dict(_SAME_NAMES)
        if self.load_opt_state:
            names["opt_state"] = "opt_state"
        return PartialKauldronLoader(
            workdir=self.workdir, step=self.step, new_to_old=names
        )
