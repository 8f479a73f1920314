"""What can be put into a checkpoint: the item protocol. Imports no orbax by itself."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Self

import jax

DEFAULT_ITEM_NAME = "default"


class CheckpointItem(abc.ABC):
    """Anything that can be saved and restored."""

    @abc.abstractmethod
    def __kd_ocp_handlers__(self) -> Any:
        """The orbax handler (or several by item name)."""

    @abc.abstractmethod
    def __kd_ocp_save_args__(self) -> Any:
        """The orbax arguments to save with."""

    @abc.abstractmethod
    def __kd_ocp_restore_args__(self) -> Any:
        """The orbax arguments to restore with."""

    def __kd_ocp_restore_post__(self, value: Any) -> Any:
        """Make the item from what orbax restored."""
        return value


class StandardCheckpointItem(CheckpointItem):
    """Mixin for pytree dataclasses, stored as a tree of arrays.

    `StandardCheckpointItem()` itself asks for whatever is stored, as nested dicts.
    """

    def __kd_ocp_handlers__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.StandardCheckpointHandler()

    def __kd_ocp_save_args__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.StandardSave(self._as_tree())

    def __kd_ocp_restore_args__(self) -> Any:
        import orbax.checkpoint as ocp

        tree = self._as_tree()
        return ocp.args.StandardRestore(None if tree is None else to_specs(tree))

    def __kd_ocp_restore_post__(self, value: Any) -> Any:
        if self._as_tree() is None:
            return value
        return dataclasses.replace(self, **value)  # type: ignore[type-var]

    def _as_tree(self) -> dict[str, Any] | None:
        """The fields by name; `None` if the structure is not known."""
        if not dataclasses.is_dataclass(self):
            return None
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


class TopLevelCheckpointItem(CheckpointItem):
    """Mixin for a named tuple whose fields are items.

    Attributes:
      DEFAULT_ITEM: Name of the field that is stored as the item `default`, so that it
        can be restored alone.
    """

    DEFAULT_ITEM: ClassVar[str | None] = None

    def items_by_name(self) -> dict[str, Any]:
        """From the name on disk to the item."""
        return {
            DEFAULT_ITEM_NAME if name == self.DEFAULT_ITEM else name: item
            for name, item in self._asdict().items()  # type: ignore[attr-defined]
        }

    def with_items(self, items: dict[str, Any]) -> Self:
        """The tuple with restored items in the place of its own."""
        by_field = {
            self.DEFAULT_ITEM if name == DEFAULT_ITEM_NAME else name: item
            for name, item in items.items()
        }
        return self._replace(**by_field)  # type: ignore[attr-defined]

    def __kd_ocp_handlers__(self) -> Any:
        return {n: i.__kd_ocp_handlers__() for n, i in self.items_by_name().items()}

    def __kd_ocp_save_args__(self) -> Any:
        import orbax.checkpoint as ocp

        args = {n: i.__kd_ocp_save_args__() for n, i in self.items_by_name().items()}
        return ocp.args.Composite(**args)

    def __kd_ocp_restore_args__(self) -> Any:
        import orbax.checkpoint as ocp

        args = {n: i.__kd_ocp_restore_args__() for n, i in self.items_by_name().items()}
        return ocp.args.Composite(**args)


def split(item: Any) -> dict[str, Any]:
    """The parts of an item, by their names on disk."""
    if isinstance(item, TopLevelCheckpointItem):
        return item.items_by_name()
    return {DEFAULT_ITEM_NAME: item}


def join(item: Any, parts: dict[str, Any]) -> Any:
    """The item again, from its restored parts."""
    if isinstance(item, TopLevelCheckpointItem):
        return item.with_items(parts)
    return parts[DEFAULT_ITEM_NAME]


def to_specs(tree: Any) -> Any:
    """Arrays to `jax.ShapeDtypeStruct`s with their shardings."""

    def to_spec(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None)
        )

    return jax.tree.map(to_spec, tree)
