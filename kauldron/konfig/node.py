"""The storage under `ConfigDict`: fields, where they came from, where they hang.

Everything in this package that reads configs works on `Node`, so that it need not know
the editing rules of `ConfigDict`, which are built on top of it:

* `raw_fields(node)`: the stored dict, references not evaluated, in insertion order.
* `is_call(node)`, `is_const(node)`: which of the three node forms it is.
* `node_path(node)`: where the node hangs below its root, as far as is known.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import ml_collections

from kauldron.path_grammar import format_part

QUALNAME_KEY = "__qualname__"
CONST_KEY = "__const__"
ID_KEY = "__id__"

Key: TypeAlias = Any  # str, int, float or bool
Parts: TypeAlias = tuple[Key, ...]  # one path: the keys and indexes from a root


class Node(ml_collections.ConfigDict):
    """A mapping of fields with its creation place, history and a hint of its parent.

    The state is kept under names that no argument of a real class is likely to have:
    they shadow fields of the same name on attribute access.
    """

    # Where this node was created: an event of kind init or json without a value.
    _konfig_origin: Any
    # From key (or (key, index, ...) for list items) to the events of its writes.
    _konfig_history: dict[Any, tuple[Any, ...]] | None
    # Weak references to the nodes that were given this one, the first one first.
    _konfig_parents: tuple[weakref.ref[Node], ...]
    _fields: dict[Key, Any]
    _locked: bool
    _type_safe: bool

    def __init__(self) -> None:
        super().__init__(allow_dotted_keys=True, sort_keys=False)
        state = self.__dict__
        state["_konfig_origin"] = None
        state["_konfig_history"] = None
        state["_konfig_parents"] = ()


def raw_fields(node: Node) -> dict[Key, Any]:
    """The fields as stored: references are not evaluated. Not to be modified."""
    return node.__dict__["_fields"]


def is_call(node: Node) -> bool:
    """Whether the node stands for a call of the symbol in its `__qualname__`."""
    return QUALNAME_KEY in raw_fields(node)


def is_const(node: Node) -> bool:
    """Whether the node stands for the symbol in its `__const__`."""
    return CONST_KEY in raw_fields(node)


def positional_count(node: Node) -> int:
    """The number of consecutive positional arguments `"0"`, `"1"`, ..."""
    fields = raw_fields(node)
    count = 0
    while str(count) in fields:
        count += 1
    return count


def path_part(node: Node, key: Key) -> Key:
    """The key as it stands in paths: positional arguments are integers."""
    if isinstance(key, str) and key.isdecimal() and is_call(node):
        return int(key)
    return key


# ------------------------------------------------------------------------------------
# Where a node hangs
# ------------------------------------------------------------------------------------


def remember_parent(value: Any, parent: Node) -> None:
    """Notes that `parent` holds the nodes and placeholders in `value`, also in lists."""
    if isinstance(value, (list, tuple)):
        for item in value:
            remember_parent(item, parent)
        return
    known = getattr(value, "__dict__", {}).get("_konfig_parents")
    if known is None or any(reference() is parent for reference in known):
        return
    alive = (reference for reference in known if reference() is not None)
    value.__dict__["_konfig_parents"] = (*alive, weakref.ref(parent))


def node_path(child: Any) -> Parts:
    """The parts that lead from the outermost known holder to a node or placeholder.

    It may hang in several places; this is the first one that it still hangs in. Empty
    for what nothing is known to hold.
    """
    parts: list[Key] = []
    start, seen = child, {id(child)}
    while (step := _step_from_parent(child)) is not None:
        parent, below = step
        if parent is start:  # it holds itself: nothing is around it
            return ()
        if id(parent) in seen:
            break
        seen.add(id(parent))
        parts.extend(reversed(below))
        child = parent
    return tuple(reversed(parts))


def _step_from_parent(child: Any) -> tuple[Node, Parts] | None:
    for reference in child.__dict__["_konfig_parents"]:
        parent = reference()
        if parent is None:
            continue
        for key, value in raw_fields(parent).items():
            below = _find_inside(value, child)
            if below is not None:
                return parent, (path_part(parent, key), *below)
    return None


def _find_inside(value: Any, wanted: Any, around: Parts = ()) -> Parts | None:
    """The indexes that lead from a stored value to something in its lists."""
    if value is wanted:
        return ()
    if isinstance(value, (list, tuple)) and id(value) not in around:
        for index, item in enumerate(value):
            below = _find_inside(item, wanted, (*around, id(value)))
            if below is not None:
                return (index, *below)
    elif isinstance(value, ml_collections.FieldReference):  # held by a placeholder
        held = value.__dict__.get("_konfig_value")
        return None if held is None else _find_inside(held, wanted, around)
    return None


def expression(parts: Iterable[Key], root: str = "cfg") -> str:
    """A path as the expression that messages show.

    >>> expression(("model", "layers", 2))
    'cfg.model.layers[2]'
    """
    return root + "".join(map(format_part, parts))


def field_expression(node: Node, *parts: Key) -> str:
    """`cfg.a.b` for the place `parts` below `node`, from the outermost known holder."""
    if parts:
        parts = (path_part(node, parts[0]), *parts[1:])
    return expression((*node_path(node), *parts))


def nodes_below(value: Any) -> Iterator[Node]:
    """All nodes that a value contains, itself included, each once, parents first.

    References are not followed.
    """
    seen: set[int] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, Node):
            if id(value) not in seen:
                seen.add(id(value))
                yield value
                stack.extend(reversed(raw_fields(value).values()))
        elif isinstance(value, (list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            stack.extend(reversed(value))
