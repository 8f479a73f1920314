"""What can be put into a checkpoint: the item protocol. Imports no orbax by itself."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

DEFAULT_ITEM_NAME = "default"


class CheckpointItem(abc.ABC):
    """Anything that can be saved and restored.

    Objects that have these methods are items, whether or not they inherit from here.
    """

    @abc.abstractmethod
    def __kd_ocp_handlers__(self) -> Any:
        """Return the orbax handler (or several by item name)."""

    @abc.abstractmethod
    def __kd_ocp_save_args__(self) -> Any:
        """Return the orbax arguments to save with."""

    @abc.abstractmethod
    def __kd_ocp_restore_args__(self) -> Any:
        """Return the orbax arguments to restore with."""

    def __kd_ocp_restore_post__(self, value: Any) -> Any:
        """Make the item from what orbax restored."""
        return value


class StandardCheckpointItem(CheckpointItem):
    """Mixin for pytree dataclasses, stored as a tree of arrays.

    When restoring, a field that is `None` is left alone: it is not read, and what the
    checkpoint has for it does not matter.

    `StandardCheckpointItem()` itself asks for whatever is stored, as nested dicts and
    lists with arrays on the first device.
    """

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.ckpts import orbax_io

        return orbax_io.tree_handler()

    def __kd_ocp_save_args__(self) -> Any:
        import orbax.checkpoint as ocp

        from kauldron.ckpts import orbax_io

        return ocp.args.PyTreeSave(orbax_io.as_saved(fields_of(self)))

    def __kd_ocp_restore_args__(self) -> Any:
        import orbax.checkpoint as ocp

        from kauldron.ckpts import orbax_io

        tree = fields_of(self)
        if tree is None:
            return ocp.args.PyTreeRestore()
        request = orbax_io.as_requests(tree)
        restore_args = ocp.checkpoint_utils.construct_restore_args(request)
        return ocp.args.PyTreeRestore(item=request, restore_args=restore_args)

    def __kd_ocp_restore_post__(self, value: Any) -> Any:
        if fields_of(self) is None:
            return value
        return dataclasses.replace(self, **value)  # type: ignore[type-var]


def fields_of(item: StandardCheckpointItem) -> dict[str, Any] | None:
    """Return what is stored of an item, by field name; `None` if it can be anything."""
    if not dataclasses.is_dataclass(item):
        return None
    return {
        field.name: getattr(item, field.name)
        for field in dataclasses.fields(item)
        if field.metadata.get("pytree_node", True)  # flax: not part of the tree
    }


class JsonCheckpointItem(CheckpointItem):
    """An item that is JSON on disk."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what is stored."""

    @abc.abstractmethod
    def with_json(self, value: Mapping[str, Any]) -> Self:
        """Return an object like this one that continues from what was stored."""

    def __kd_ocp_handlers__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.JsonCheckpointHandler()

    def __kd_ocp_save_args__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.JsonSave(self.to_json())

    def __kd_ocp_restore_args__(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.JsonRestore()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        return self.with_json(value)


class TopLevelCheckpointItem(CheckpointItem):
    """Mixin for a named tuple whose fields are items.

    Attributes:
      DEFAULT_ITEM: Name of the field that is stored as the item `default`, so that it
        can be restored alone.
    """

    DEFAULT_ITEM: ClassVar[str | None] = None

    def items_by_name(self) -> dict[str, Any]:
        """Return the items by their names on disk."""
        return {
            DEFAULT_ITEM_NAME if name == self.DEFAULT_ITEM else name: item
            for name, item in self._asdict().items()  # type: ignore[attr-defined]
        }

    def with_items(self, items: dict[str, Any]) -> Self:
        """Return the tuple with restored items in place of its own."""
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
    """Return the parts of an item, by their names on disk."""
    if isinstance(item, TopLevelCheckpointItem):
        parts = item.items_by_name()
    else:
        parts = {DEFAULT_ITEM_NAME: item}
    for part in parts.values():
        if not hasattr(part, "__kd_ocp_save_args__"):
            raise TypeError(
                f"{type(part).__name__} cannot be in a checkpoint. Make it a dataclass "
                "that inherits from `kd.ckpts.items.StandardCheckpointItem`, or give it "
                "the methods of `kd.ckpts.items.CheckpointItem`."
            )
    return parts


def join(item: Any, parts: dict[str, Any]) -> Any:
    """Return the item again, from its restored parts."""
    if isinstance(item, TopLevelCheckpointItem):
        return item.with_items(parts)
    return parts[DEFAULT_ITEM_NAME]
