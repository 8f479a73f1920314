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
import dataclasses
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import ml_collections
from ml_collections import FieldReference

from kauldron.konfig.errors import CycleError
from kauldron.konfig.signatures import known_signature
from kauldron.path_grammar import format_part

QUALNAME_KEY = "__qualname__"
CONST_KEY = "__const__"
ID_KEY = "__id__"

Key: TypeAlias = Any  # str, int, float or bool
Parts: TypeAlias = tuple[Key, ...]  # one path: the keys and indexes from a root

# Stored as they are, and nothing to be found inside them.
LEAF_TYPES = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), slice}
)


class Node(ml_collections.ConfigDict):
    """A mapping of fields with its creation place, history and a hint of its parent.

    The state is kept under names that no argument of a real class is likely to have:
    they shadow fields of the same name on attribute access.
    """

    # Where this node was created, an event of kind init or json without a value; None
    # if it was not recorded.
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


def path_part(container: Any, key: Key) -> Key:
    """Return the key as it stands in paths: positional arguments are integers."""
    if isinstance(key, str) and key.isdecimal() and is_call(container):
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
            if type(item) not in LEAF_TYPES:
                remember_parent(item, parent)
        return
    known = getattr(value, "__dict__", {}).get("_konfig_parents")
    if known is None:
        return
    for reference in known:
        if reference() is parent:
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


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """Stands for a value whose reference cannot be evaluated."""

    error: Exception


class Walk:
    """One pass over a config: each reference is evaluated once, cycles are noticed.

    A `ref_fn` that makes a new node whenever it is read gives the same node to all who
    share a walk.

    Attributes:
      around: The containers on the way to where the walk is, with the keys that lead
        on. Kept by `inside`, or by whoever walks in another way.
    """

    def __init__(self, at: Parts = ()) -> None:
        self.around: list[tuple[Any, Key]] = []
        self._start = at
        # By id; with the container itself, so that its id is not used again.
        self._known: dict[int, tuple[Any, dict[Key, Any]]] = {}
        self._entered: dict[int, int] = {}  # what is not left yet: the depth of it
        self._owners: dict[int, Node] = {}  # the nodes that lists are stored in

    def parts(self, depth: int | None = None) -> Parts:
        """Return the path of where the walk is, or of a container around."""
        return (*self._start, *(path_part(c, key) for c, key in self.around[:depth]))

    def enter(self, container: Any) -> dict[Key, Any]:
        """Return what a container holds; raise `CycleError` if the walk is inside it.

        `leave` it when that is done.
        """
        if id(container) in self._entered:
            outer = expression(self.parts(self._entered[id(container)]))
            raise CycleError(
                f"The config contains itself: {expression(self.parts())} is {outer}."
            )
        self._entered[id(container)] = len(self.around)
        return self.values(container)

    def leave(self, container: Any) -> None:
        del self._entered[id(container)]

    def inside(self, container: Any) -> Iterator[tuple[Key, Any]]:
        """Yield what a container holds, as `enter` gives it, with the walk at its place."""
        for key, value in self.enter(container).items():
            self.around.append((container, key))
            yield key, value
            self.around.pop()
        self.leave(container)

    def values(self, container: Any) -> dict[Key, Any]:
        """Return what a node, list or tuple holds, by key or index; not for changing.

        References are evaluated; `Unreadable` where that fails. What was appended to a
        stored list (a proxy, a plain dict) is converted as if it had been assigned to
        the node around it.
        """
        if id(container) in self._known:
            return self._known[id(container)][1]
        if isinstance(container, Node):
            owner, stored, read = container, container._fields.copy(), _read_field
        else:
            owner, stored = self._owners.get(id(container)), dict(enumerate(container))
            read = _read_item
        if owner is None:
            return stored
        evaluated: dict[Key, Any] = {}
        for key, raw in stored.items():
            if type(raw) in LEAF_TYPES:
                continue
            value = read(owner, key, raw)
            if value is not raw:
                evaluated[key] = value
            if type(value) is list or type(value) is tuple:
                self._owners.setdefault(id(value), owner)
        if evaluated:
            stored.update(evaluated)
            self._known[id(container)] = (container, stored)
        return stored

    def children(self, container: Any) -> list[Child]:
        """Return what a node, list or tuple holds, as stored too; nothing for a leaf."""
        if not isinstance(container, (Node, list, tuple)):
            return []
        found = []
        for key, value in self.values(container).items():
            raw = raw_value(container, key)
            value = raw if isinstance(value, Unreadable) else value
            found.append(Child(key, path_part(container, key), raw, value))
        return found

    def read(self, reference: FieldReference[Any]) -> Any:
        """Return what a reference outside of fields and lists evaluates to."""
        if id(reference) not in self._known:
            self._known[id(reference)] = (reference, {None: _evaluated(reference)})
        return self._known[id(reference)][1][None]


def raw_value(container: Any, key: Key) -> Any:
    """Return what a node, list or tuple holds, references not evaluated."""
    return container._fields[key] if isinstance(container, Node) else container[key]


def _evaluated(reference: FieldReference[Any]) -> Any:
    try:
        return reference.get()
    except Exception as error:
        return Unreadable(error)


def _read_field(node: Node, key: Key, raw: Any) -> Any:
    if not isinstance(raw, FieldReference):
        return raw
    try:
        return node[key]
    except Exception as error:
        return Unreadable(error)


def _read_item(owner: Node, index: int, raw: Any) -> Any:
    if is_normal(raw):
        return raw
    value = _evaluated(raw) if isinstance(raw, FieldReference) else raw
    if not isinstance(value, Unreadable):
        with contextlib.suppress(ValueError):  # real objects stay what they are
            value = owner._konfig_normalized(value, index)  # pyright: ignore
    return value


def is_normal(value: Any) -> bool:
    """Return whether an item of a list is what assigning it would have stored.

    Whatever is appended to a stored list comes in as it is.
    """
    return type(value) in LEAF_TYPES or isinstance(value, (Node, list, tuple))
