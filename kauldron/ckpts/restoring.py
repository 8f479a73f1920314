"""Restoring an item from the folder of one checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from kauldron import status
from kauldron.ckpts import items, step_folders, structure
from kauldron.ckpts.structure import LeafPath
from kauldron.errors import error_prefix

_T = TypeVar("_T")
_TREE_HANDLERS = ("PyTreeCheckpointHandler", "StandardCheckpointHandler")


def restore_item(item: _T, folder: epath.Path, *, donate: bool) -> _T:
    """Restore an item, or a tuple of items; parts that are not stored keep their value.

    With `donate`, the arrays of `item` are freed once it is known that they fit.
    """
    parts = items.split(item)
    stored = _parts_on_disk(parts, folder)
    with error_prefix(f"Restoring {folder} failed: "):
        step_folders.check_checksums(folder)
    trees = _plan(stored, folder)
    for tree in trees.values() if donate else ():
        tree.free_arrays()
    consumed = " (the state that was passed is consumed)" if donate else ""
    with (
        error_prefix(f"Restoring {folder} failed{consumed}: "),
        jax.transfer_guard("allow"),
    ):
        # All is read before anything is made of it: items may change in place.
        values = {
            name: trees[name].read() if name in trees else _read(part, folder / name)
            for name, part in stored.items()
        }
        restored = {
            name: _restore_post(part, values[name], folder / name)
            for name, part in stored.items()
        }
    return items.join(item, {**parts, **restored})


def check_fits(item: Any, folder: epath.Path) -> None:
    """Raise `StructureMismatch` if the checkpoint holds another structure."""
    _plan(_parts_on_disk(items.split(item), folder), folder)


def _plan(parts: Mapping[str, Any], folder: epath.Path) -> dict[str, _TreeToRead]:
    """Return what to read of each tree in the folder; raise if it does not fit."""
    with error_prefix(f"Restoring {folder} failed: "):
        return {
            name: _plan_tree(part, folder / name)
            for name, part in parts.items()
            if isinstance(part, items.StandardCheckpointItem)
        }


def is_error_anywhere(error: Exception | None) -> bool:
    """Return whether this process, or another one of the run, failed."""
    if jax.process_count() == 1:
        return error is not None
    flags = multihost_utils.process_allgather(np.array(error is not None))
    return bool(np.any(flags))


def _parts_on_disk(parts: Mapping[str, Any], folder: epath.Path) -> dict[str, Any]:
    """Return the parts that the checkpoint has; only the default one is required."""
    stored = step_folders.item_names(folder)
    handlers = step_folders.read_metadata(folder).get("item_handlers") or {}
    found = {
        name: part
        for name, part in parts.items()
        if name in stored and not _is_of_another_kind(part, name, handlers.get(name))
    }
    missing = [name for name in parts if name not in found]
    if items.DEFAULT_ITEM_NAME in missing or not found:
        raise FileNotFoundError(
            f"{folder} has no item {', '.join(map(repr, missing))}; it has "
            f"{', '.join(stored) or 'nothing'}."
        )
    if missing:
        status.log_warning(
            f"{folder} has no {' and no '.join(missing)} that this run can read: the "
            "initial value is kept."
        )
    return found


def _is_of_another_kind(part: Any, name: str, written_by: str | None) -> bool:
    """Return whether something other than this part is stored under its name.

    Data sets that remember their position in other ways are not damaged ones.
    """
    if name == items.DEFAULT_ITEM_NAME or not written_by:
        return False
    written_by = written_by.rpartition(".")[2]
    if isinstance(part, items.StandardCheckpointItem):
        return written_by not in _TREE_HANDLERS
    with contextlib.closing(part.__kd_ocp_handlers__()) as handler:
        return written_by != type(handler).__name__


def _read(part: Any, folder: epath.Path) -> Any:
    """Read a part in its own way."""
    with contextlib.closing(part.__kd_ocp_handlers__()) as handler:
        return handler.restore(folder, args=part.__kd_ocp_restore_args__())


def _restore_post(part: Any, value: Any, folder: epath.Path) -> Any:
    """Make the part from what was read."""
    if folder.name == items.DEFAULT_ITEM_NAME:
        return part.__kd_ocp_restore_post__(value)
    noted = step_folders.CHECKSUMS_FILENAME
    advice = f"delete {folder} and {folder.parent / noted} to go on without it"
    with error_prefix(f"{folder.name} ({advice}): "):
        return part.__kd_ocp_restore_post__(value)


#
# Trees of arrays
#


@dataclasses.dataclass(frozen=True)
class _TreeToRead:
    """A tree that fits what is stored of it, and the leaves to read."""

    folder: epath.Path
    stored: Any  # its structure on disk
    tree: Any  # the structure of what is restored
    wanted: dict[LeafPath, Any]

    def free_arrays(self) -> None:
        """Free the memory of what is replaced; the arrays still tell what is wanted."""
        for leaf in self.wanted.values():
            if isinstance(leaf, jax.Array) and not leaf.is_deleted():
                leaf.delete()

    def read(self) -> Any:
        from kauldron.ckpts import orbax_io

        leaves = orbax_io.read_leaves(self.folder, self.stored, self.wanted)
        return structure.with_leaves(self.tree, leaves)


def _plan_tree(item: items.StandardCheckpointItem, folder: epath.Path) -> _TreeToRead:
    from kauldron.ckpts import orbax_io

    stored = orbax_io.stored_tree(folder)
    stored_leaves = structure.flatten(stored)
    fields = items.fields_of(item)
    if fields is None:
        anywhere = {p: orbax_io.anywhere(leaf) for p, leaf in stored_leaves.items()}
        return _TreeToRead(folder, stored, stored, anywhere)
    wanted = structure.flatten(fields)
    left_alone = {(name,) for name, value in fields.items() if value is None}
    structure.check_fits(
        wanted,
        {p: leaf for p, leaf in stored_leaves.items() if p[:1] not in left_alone},
        where=f"the item {folder.name!r}",
    )
    return _TreeToRead(folder, stored, fields, wanted)
