"""The storage under `ConfigDict`: fields, where they hang, and the walk over them.

Everything in this package that reads configs works on `Node` and `Walk`, so that it need
not know the editing rules of `ConfigDict`, which are built on top of them:

* `node._fields`: the stored dict, references not evaluated, in insertion order.
* `is_call(node)`, `is_const(node)`: which of the three node forms it is.
* `node_path(node)`: where the node hangs below its root, as far as is known.
* `Walk().children(node)`: what it holds, references evaluated.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import ml_collections
from ml_collections import FieldReference

from kauldron.konfig.errors import CycleError
from kauldron.konfig.signatures import (
    known_signature,
)
from kauldron.path_grammar import format_part

QUALNAME_KEY = "__qualname__"
CONST_KEY = "__const__"
ID_KEY = "__id__"

Key: TypeAlias = Any  # str, int, float or bool
Parts: TypeAlias = tuple[Key, ...]  # one path: the keys and indexes from a root

# Stored as they are, and nothing to be found inside of them.
LEAF_TYPES = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), slice}
)


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


def is_call(node: Node) -> bool:
    """Return whether the node stands for a call of the symbol in its `__qualname__`."""
    return QUALNAME_KEY in node._fields


def is_const(node: Node) -> bool:
    """Return whether the node stands for the symbol in its `__const__`."""
    return CONST_KEY in node._fields


def positional_count(node: Node) -> int:
    """Return the number of consecutive positional arguments `"0"`, `"1"`, ..."""
    fields = node._fields
    count = 0
    while str(count) in fields:
        count += 1
    return count


def path_part(node: Node, key: Key) -> Key:
    """Return the key as it stands in paths: positional arguments are integers."""
    if isinstance(key, str) and key.isdecimal() and is_call(node):
        return int(key)
    return key


def key_of_parameter(node: Node, name: str) -> str | None:
    """Return the key of the positional argument that a call gives to a parameter.

    None if there is no such argument or parameter, or if what is called is not loaded;
    inside `importing_symbols` it is imported.
    """
    fields = node._fields
    if name[:1] == "_" or "0" not in fields or QUALNAME_KEY not in fields:
        return None
    signature = known_signature(fields[QUALNAME_KEY])
    parameters = signature.parameters.values() if signature is not None else ()
    for index, parameter in enumerate(parameters):
        if parameter.name == name and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return str(index) if str(index) in fields else None
    return None


# ------------------------------------------------------------------------------------
# Where a node hangs
# ------------------------------------------------------------------------------------


def remember_parent(value: Any, parent: Node) -> None:
    """Note that `parent` holds the nodes and placeholders in `value`, also in lists."""
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
    """Return the path from the outermost known holder to a node or placeholder.

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
        for key, value in parent._fields.items():
            below = _find_inside(value, child)
            if below is not None:
                return parent, (path_part(parent, key), *below)
    return None


def _find_inside(value: Any, wanted: Any, around: Parts = ()) -> Parts | None:
    """Return the indexes that lead from a stored value to something in its lists."""
    if value is wanted:
        return ()
    if isinstance(value, (list, tuple)) and id(value) not in around:
        for index, item in enumerate(value):
            below = _find_inside(item, wanted, (*around, id(value)))
            if below is not None:
                return (index, *below)
    elif isinstance(value, FieldReference):  # held by a placeholder
        held = value.__dict__.get("_konfig_value")
        return None if held is None else _find_inside(held, wanted, around)
    return None


def expression(parts: Iterable[Key], root: str = "cfg") -> str:
    """Return a path as the expression that messages show.

    >>> expression(("model", "layers", 2))
    'cfg.model.layers[2]'
    """
    return root + "".join(map(format_part, parts))


def field_expression(node: Node, *parts: Key) -> str:
    """Return `cfg.a.b` for a place below `node`, from the outermost known holder."""
    if parts:
        parts = (path_part(node, parts[0]), *parts[1:])
    return expression((*node_path(node), *parts))


# ------------------------------------------------------------------------------------
# Walking
# ------------------------------------------------------------------------------------


def nodes_below(value: Any) -> Iterator[Node]:
    """Yield all nodes that a value contains, itself included, each once, parents first.

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
                stack.extend(reversed(value._fields.values()))
        elif isinstance(value, (list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            stack.extend(reversed(value))


class Child(NamedTuple):
    """What a node, list or tuple holds in one place."""

    key: Key  # in the container
    part: Key  # in paths, where positional arguments are integers
    raw: Any  # as stored
    value: Any  # with references evaluated; as stored if that failed
    error: Exception | None = None  # why it failed


class Walk:
    """One pass over a config: each reference is evaluated once, cycles are noticed.

    A `ref_fn` that makes a new node whenever it is read gives the same node to all who
    share a walk.
    """

    def __init__(self) -> None:
        # By id; with the container itself, so that its id is not used again.
        self._known: dict[int, tuple[Any, list[Child]]] = {}
        self._around: dict[int, Parts] = {}  # containers that were entered, not left
        self._owners: dict[int, Node] = {}  # the nodes that lists are stored in

    def enter(self, container: Any, at: Parts) -> list[Child]:
        """Return the children of a container; `leave` it when they are done.

        Raises:
          CycleError: It was entered already.
        """
        if id(container) in self._around:
            outer = expression(self._around[id(container)])
            raise CycleError(
                f"The config contains itself: {expression(at)} is {outer}."
            )
        self._around[id(container)] = at
        return self.children(container)

    def leave(self, container: Any) -> None:
        del self._around[id(container)]

    def children(self, container: Any) -> list[Child]:
        """Return what a node, list or tuple holds; nothing for a leaf.

        What was appended to a stored list (a proxy, a plain dict) is converted as if it
        had been assigned to the node around it.
        """
        if id(container) in self._known:
            return self._known[id(container)][1]
        if isinstance(container, Node):
            owner, items = container, list(container._fields.items())
            found = [_child_of_node(container, key, raw) for key, raw in items]
        elif type(container) in (list, tuple):
            owner = self._owners.get(id(container))
            found = [_child_of_list(owner, i, raw) for i, raw in enumerate(container)]
        else:
            return []
        self._known[id(container)] = (container, found)
        for child in found:
            if owner is not None and type(child.value) in (list, tuple):
                self._owners.setdefault(id(child.value), owner)
        return found


def _child_of_node(node: Node, key: Key, raw: Any) -> Child:
    part = path_part(node, key)
    if type(raw) in LEAF_TYPES or not isinstance(raw, FieldReference):
        return Child(key, part, raw, raw)
    try:
        return Child(key, part, raw, node[key])
    except Exception as error:
        return Child(key, part, raw, raw, error)


def _child_of_list(owner: Node | None, index: int, raw: Any) -> Child:
    if owner is None or is_normal(raw):
        return Child(index, index, raw, raw)
    try:
        value = raw.get() if isinstance(raw, FieldReference) else raw
    except Exception as error:
        return Child(index, index, raw, raw, error)
    with contextlib.suppress(ValueError):  # real objects stay what they are
        value = owner._konfig_normalized(value, index)  # pyright: ignore
    return Child(index, index, raw, value)


def is_normal(value: Any) -> bool:
    """Return whether an item of a list is what assigning it would have stored.

    Whatever is appended to a stored list comes in as it is.
    """
    return type(value) in LEAF_TYPES or isinstance(value, (Node, list, tuple))
