"""What counts as a node of a tree, what its children are, and how it is rebuilt.

Nodes are mappings, lists, tuples, named tuples and dataclass instances. Everything
else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, NamedTuple, TypeAlias

from kauldron.kontext.parts import comparable
from kauldron.path_grammar import Part, Wildcard

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


#
# Rebuilding
#


def with_children(node: Any, changes: Mapping[Any, Any]) -> Any:
    """Return a copy of the node in which some children are others."""
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
# Walking a tree along a pattern; what to do where it fails is the caller's choice
#


class Match(NamedTuple):
    """A node that a pattern stands for.

    Attributes:
      parts: The concrete path to it.
      node: The node.
      lenient: Whether the pattern so far ends with `**`, or with `**` and `*`. What
        follows then need not exist below every such node.
    """

    parts: tuple[Part, ...]
    node: Any
    lenient: bool


OnMissing: TypeAlias = Callable[[tuple[Part, ...], Any, Part], None]
"""Called with path, node and part where a part must exist and does not."""

Select: TypeAlias = Callable[[Any, Part], list[tuple[Part, Any]] | None]


def find(
    tree: Any,
    pattern: tuple[Part, ...],
    on_missing: OnMissing,
    select: Select = select,
) -> Iterator[Match]:
    """Yield the nodes that the pattern stands for: a node first, then what is below it.

    A part must exist wherever the parts before it lead. Only the first one after `**`
    may be absent: `**` looks for the places that have it. `on_missing` is called where
    a part must exist and does not; if it returns, that branch has no match. `select`
    gives the children that a part without wildcards leads to.
    """
    expanded: set[tuple[Any, int]] = set()
    several = sum(part is Wildcard.DOUBLE_STAR for part in pattern) > 1

    def search(
        parts: tuple[Part, ...], node: Any, at: int, lenient: bool
    ) -> Iterator[Match]:
        if at == len(pattern):
            yield Match(parts, node, lenient)
            return
        part = pattern[at]
        if part is Wildcard.DOUBLE_STAR:
            if several:  # they can meet at the same place
                place = (comparable(parts), at)
                if place in expanded:
                    return
                expanded.add(place)
            yield from search(parts, node, at + 1, True)
            found, following, lenient = _items(children(node)), at, True
        elif part is Wildcard.STAR:
            found, following = _items(children(node)), at + 1
        else:
            found, following = select(node, part), at + 1
        if found is None:
            if not lenient:
                on_missing(parts, node, part)
            return
        lenient = lenient and isinstance(part, Wildcard)
        for key, child in found:
            yield from search((*parts, key), child, following, lenient)

    return search((), tree, 0, False)


def _items(children: dict[Any, Any] | None) -> list[tuple[Part, Any]] | None:
    return None if children is None else list(children.items())


Trie: TypeAlias = dict[Part, "Trie | None"]
"""Places in a tree, as a tree: None where one ends."""


def as_trie(places: Iterable[tuple[Part, ...]]) -> Trie:
    """Return the tree of some places; those inside another are part of it."""
    root: Trie = {}
    for place in places:
        branch: Trie | None = root
        for part in place[:-1]:
            branch = branch.setdefault(part, {})
            if branch is None:
                break
        else:
            branch[place[-1]] = None
    return root
