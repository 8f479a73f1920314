"""Nodes of a tree: their children, one step of a path from them, and rebuilding them.

Nodes are mappings, lists, tuples, named tuples and dataclass instances. Everything
else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
import types
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from kauldron.path_grammar import Part

# Keys that say what a config node calls. They are not among its arguments.
_CONFIG_MARKERS = ("__qualname__", "__const__")

UNSET = enum.Enum("Unset", ["UNSET"]).UNSET
"""Stands for the value of a config field that has none yet."""


def is_config_dict(value: Any) -> bool:
    """Return whether this is an `ml_collections.ConfigDict`, without importing that."""
    library = sys.modules.get("ml_collections")
    config_dict = getattr(library, "ConfigDict", None)
    return config_dict is not None and isinstance(value, config_dict)


def is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) or is_config_dict(value)


def is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def is_dataclass_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_mutable(node: Any) -> bool:
    """Return whether a child of this node can be replaced in place."""
    return isinstance(node, (MutableMapping, list)) or is_config_dict(node)


def is_sequence(node: Any) -> bool:
    return isinstance(node, (list, tuple))


#
# Children
#


def children(node: Any) -> dict[Any, Any] | None:
    """Return the children of a node by the part that leads to them; None for a leaf."""
    if is_config_dict(node):
        return {key: _value(node, key) for key in node if key not in _CONFIG_MARKERS}
    if isinstance(node, Mapping):
        return {key: node[key] for key in node}
    if is_named_tuple(node):
        return dict(zip(type(node)._fields, node))
    if is_sequence(node):
        return dict(enumerate(node))
    if is_dataclass_instance(node):
        return {name: getattr(node, name) for name in _field_names(node)}
    return None


def is_leaf(value: Any) -> bool:
    return not (is_mapping(value) or is_sequence(value) or is_dataclass_instance(value))


def select(node: Any, part: Part) -> list[tuple[Part, Any]] | None:
    """Return the children that a part without wildcards leads to; None if none does.

    Pairs of part and child: one, or one for each item of a slice. The parts are those
    of `children`: fields of named tuples by name, no negative indices.
    """
    if is_mapping(node):
        return [(part, _value(node, part))] if has_key(node, part) else None
    if is_sequence(node) and (isinstance(part, slice) or is_index(part)):
        return _select_items(node, part)
    if isinstance(part, str) and part in _names(node):
        return [(part, getattr(node, part))]
    return None


def _select_items(node: Any, part: Any) -> list[tuple[Part, Any]] | None:
    keys = type(node)._fields if is_named_tuple(node) else range(len(node))
    try:
        selected = keys[part] if isinstance(part, slice) else (keys[part],)
    except IndexError:
        return None
    items = dict(zip(keys, node))
    return [(key, items[key]) for key in selected]


def _names(node: Any) -> Sequence[str]:
    if is_named_tuple(node):
        return type(node)._fields
    return _field_names(node) if is_dataclass_instance(node) else ()


def has_key(mapping: Any, key: Any) -> bool:
    """`key in mapping`, also for keys that no mapping can have."""
    return can_be_key(key) and key in mapping


def can_be_key(part: Any) -> bool:
    try:
        hash(part)
    except TypeError:
        return False
    return not isinstance(part, slice)  # hashable from Python 3.12 on


def _value(mapping: Any, key: Any) -> Any:
    if not is_config_dict(mapping):
        return mapping[key]
    try:
        return mapping[key]
    except Exception:  # a field that must still be set refuses to be read
        return UNSET


def is_index(part: Any) -> bool:
    return isinstance(part, int) and not isinstance(part, bool)


def _field_names(node: Any) -> list[str]:
    """Return names of the fields that have a value."""
    # A flax module knows its parent: following that would leave the tree.
    skip = ("parent", "name") if _is_linen_module(node) else ()
    names = (field.name for field in dataclasses.fields(node))
    return [name for name in names if name not in skip and hasattr(node, name)]


def _is_linen_module(value: Any) -> bool:
    module_class = getattr(sys.modules.get("flax.linen"), "Module", None)
    return module_class is not None and isinstance(value, module_class)


def registered_children(node: Any) -> tuple[list[tuple[Any, Any]], Any] | None:
    """Return parts and children as jax knows them, and the structure; None for a leaf."""
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is None:  # then no class can have been registered
        return None
    if tree_util.all_leaves((node,)):
        return None
    entries, structure = tree_util.tree_flatten_with_path(
        node, is_leaf=lambda child: child is not node
    )
    return [(part_from_jax(path[0]), child) for path, child in entries], structure


def part_from_jax(entry: Any) -> Any:
    """Return the key, name or index of one jax key entry."""
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is not None:
        if isinstance(entry, (tree_util.DictKey, tree_util.FlattenedIndexKey)):
            return entry.key
        if isinstance(entry, tree_util.GetAttrKey):
            return entry.name
        if isinstance(entry, tree_util.SequenceKey):
            return entry.idx
    raise TypeError(f"{entry!r} ({type(entry).__name__}) is not a key entry of jax.")


#
# Rebuilding
#


def with_children(node: Any, changes: Mapping[Any, Any]) -> Any:
    """Return a copy of the node with some children replaced."""
    if is_mapping(node):
        return _mapping_with(node, changes)
    if is_named_tuple(node):
        return node._replace(**changes)
    if is_sequence(node):
        items = list(node)
        for index, value in changes.items():
            items[index] = value
        return items if type(node) is list else type(node)(items)
    if _is_linen_module(node):
        return node.clone(**changes)
    return dataclasses.replace(node, **changes)


def _mapping_with(node: Any, changes: Mapping[Any, Any]) -> Any:
    if not is_mutable(node):
        return type(node)({**node, **changes})
    # copy.copy keeps what a dict subclass carries besides its items.
    new = copy.copy(node) if isinstance(node, dict) else type(node)(node)
    for key, value in changes.items():
        new[key] = value
    return new


def with_only(node: Any, kept: Mapping[Any, Any]) -> Any:
    """Return a node of the same type that has only these children.

    Named tuples and dataclasses cannot lack a field: they become dicts.
    """
    if isinstance(node, dict):
        new = copy.copy(node)
        new.clear()
        new.update(kept)
        return new
    if is_mapping(node):
        return type(node)(dict(kept))
    if is_sequence(node) and not is_named_tuple(node):
        return type(node)(kept.values())
    return dict(kept)


#
# One step of a path: from a value to its item or attribute
#


MISSING = enum.Enum("Missing", ["MISSING"]).MISSING
"""What `child` returns when there is nothing."""

_BOUND_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def walk(value: Any, parts: Sequence[Part]) -> tuple[Any, int]:
    """Follow the parts as far as they lead.

    Returns the value reached, and the number of parts that led there: if it is below
    `len(parts)`, the part at that position leads nowhere.
    """
    for count, part in enumerate(parts):
        found = child(value, part)
        if found is MISSING:
            return value, count
        value = found
    return value, len(parts)


def child(value: Any, part: Part) -> Any:
    """Return the item of `value`, else its attribute, else `MISSING`."""
    kind = type(value)
    if kind is dict:
        try:
            return value.get(part, MISSING)
        except TypeError:  # unhashable
            return MISSING
    if kind is list or kind is tuple or kind is str:
        try:
            return value[part]
        except (TypeError, IndexError):
            return MISSING
    found = _item(value, part)
    if found is MISSING and isinstance(part, str):
        found = _attribute(value, part)
    if found is MISSING and _may_be_of_spec(part) and is_array_spec(value):
        found = _item_of_spec(value, part)
    return found


def _item(value: Any, part: Part) -> Any:
    if is_mapping(value) and not has_key(value, part):
        return MISSING  # asking for the item could create it
    try:
        if hasattr(type(value), "__getitem__"):
            if not isinstance(part, str):
                check_bounds(value, part)
            return value[part]
    except (TypeError, IndexError, KeyError):
        pass
    return MISSING


def _may_be_of_spec(part: Part) -> bool:
    # For any other name the shape of the value does not matter.
    return not isinstance(part, str) or part in SHAPE_ATTRIBUTES


def _item_of_spec(value: Any, part: Part) -> Any:
    try:
        return spec_item(value, part)
    except (TypeError, IndexError, ValueError):
        return MISSING


def _attribute(value: Any, name: str) -> Any:
    try:
        found = getattr(value, name)
    except AttributeError:
        if _is_computed(type(value), name):
            raise  # not a miss: the user's own code failed
        return MISSING
    if isinstance(found, _BOUND_METHODS) and _is_container(value):
        return MISSING
    return found


def _is_computed(cls: type, name: str) -> bool:
    """Return whether the class has a descriptor of this name, such as a property."""
    for base in cls.__mro__:
        if name in vars(base):
            return not isinstance(vars(base)[name], types.MemberDescriptorType)
    return False


def _is_container(value: Any) -> bool:
    return is_mapping(value) or isinstance(value, (list, tuple, str))


#
# Items of arrays and of array specs, without wrong data and without a device
#


SHAPE_ATTRIBUTES = ("T", "mT")
"""Attributes of arrays that are arrays too, and that specs lack."""


def shape_and_dtype(value: Any) -> tuple[tuple[Any, ...], Any] | None:
    """Return what describes an array or a spec of one; None for everything else."""
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    except Exception:  # a property of the user's: asking what this is must not fail
        return None
    if not isinstance(shape, tuple) or dtype is None:
        return None
    return shape, dtype


def is_array_spec(value: Any) -> bool:
    """Return whether this has the shape and dtype of an array, but no items."""
    has_items = hasattr(type(value), "__getitem__")
    return not has_items and shape_and_dtype(value) is not None


def spec_item(spec: Any, part: Part) -> Any:
    """Return the spec of `array[part]`, or of one of the `SHAPE_ATTRIBUTES`."""
    import numpy as np  # array specs come from libraries that need it

    # One byte, seen as an array of any shape.
    stand_in: Any = np.broadcast_to(np.False_, spec.shape)
    item = getattr(stand_in, part) if isinstance(part, str) else stand_in[part]
    return type(spec)(shape=item.shape, dtype=spec.dtype)


def check_bounds(array: Any, part: Part) -> None:
    """Raise `IndexError` where a jax array would answer with its nearest item."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(array, jax.Array):
        return
    axes = part if isinstance(part, tuple) else (part,)
    before, after = _split_at_ellipsis(axes)
    sizes = array.shape
    for index, size in [*zip(before, sizes), *zip(reversed(after), reversed(sizes))]:
        if is_index(index) and is_index(size) and not -size <= index < size:
            raise IndexError(
                f"index {index} is out of range for an axis of size {size}"
            )


def _split_at_ellipsis(axes: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the indices counted from the first axis, and those from the last."""
    where = next((i for i, axis in enumerate(axes) if axis is ...), len(axes))
    return _consuming(axes[:where]), _consuming(axes[where + 1 :])


def _consuming(axes: tuple[Any, ...]) -> list[Any]:
    # None and booleans add an axis instead of indexing one.
    return [a for a in axes if a is not None and not isinstance(a, bool)]
