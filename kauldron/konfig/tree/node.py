"""The storage under `ConfigDict`: fields, where they came from, where they hang.

Everything in this package that reads configs works on `Node`, so that it need not know
the editing rules of `ConfigDict`, which are built on top of it:

* `node._fields`: the stored dict, references not evaluated, in insertion order.
* `is_call(node)`, `is_const(node)`: which of the three node forms it is.
* `node_path(node)`: where the node hangs below its root, as far as is known.
"""

from __future__ import annotations

import ast
import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import ml_collections

from kauldron.konfig.signatures import (
    known_signature,
)
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


def is_call(node: Node) -> bool:
    """Whether the node stands for a call of the symbol in its `__qualname__`."""
    return QUALNAME_KEY in node._fields


def is_const(node: Node) -> bool:
    """Whether the node stands for the symbol in its `__const__`."""
    return CONST_KEY in node._fields


def positional_count(node: Node) -> int:
    """The number of consecutive positional arguments `"0"`, `"1"`, ..."""
    fields = node._fields
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
        for key, value in parent._fields.items():
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
                stack.extend(reversed(value._fields.values()))
        elif isinstance(value, (list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            stack.extend(reversed(value))


RAW_PREFIX = "__raw__="


def plain_key(key: Any) -> Key:
    """The key that is meant: JSON's text for `1` is 1, `("a", "b")` is `"a.b"`.

    >>> plain_key("__raw__=1.5")
    1.5
    """
    if type(key) is str:
        return _decoded(key) if key.startswith(RAW_PREFIX) else key
    if isinstance(key, tuple) and key and all(isinstance(part, str) for part in key):
        return ".".join(key)
    return key


def _decoded(key: str) -> Key:
    text = key.removeprefix(RAW_PREFIX)
    for read in (ast.literal_eval, float):  # float reads inf and nan
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return key  # not one of ours


def raw_key(key: Key) -> str:
    """The text of a key in JSON.

    Raises:
      TypeError: The key has no such text.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, (int, float)):
        return f"{RAW_PREFIX}{key!r}"
    raise TypeError(f"the key {key!r} of type {type(key).__name__} has no JSON form")


def key_of_parameter(node: Node, name: str) -> str | None:
    """The key of the positional argument that a call gives to a parameter.

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


def call_items(items: Iterable[tuple[Key, Any]]) -> Iterable[tuple[Key, Any]]:
    """The items of a call in order: its symbol, positional arguments, the others.

    Raises:
      ValueError: An argument is given both as `0` and as `"0"`, or as `-1`.
    """
    symbol, positional, named = [], {}, []
    for key, value in items:
        key = plain_key(key)
        if type(key) is int:
            if key < 0:
                raise ValueError(f"Positional arguments count from 0, got {key}.")
            key = str(key)
        if key == QUALNAME_KEY:
            symbol.append((key, value))
        elif isinstance(key, str) and key.isdecimal():
            if int(key) in positional:
                raise ValueError(f"Positional argument {key} is given twice.")
            positional[int(key)] = value
        else:
            named.append((key, value))
    return [*symbol, *((str(i), positional[i]) for i in sorted(positional)), *named]


def is_reference(value: Any) -> bool:
    """Whether a stored value has to be evaluated when it is read."""
    return isinstance(value, ml_collections.FieldReference)


# Stored as they are, and nothing to be found inside of them.
LEAF_TYPES = frozenset(
    {int, float, bool, str, bytes, complex, type(None), type(...), slice}
)


class Reader:
    """Reads nodes and lists, remembering what each reference evaluated to.

    A `ref_fn` that makes a new node whenever it is read gives the same node to all
    passes over a config that use one reader.
    """

    def __init__(self) -> None:
        # By (id of the container, key): the container, to keep it alive, and the value.
        self._seen: dict[tuple[int, Key], tuple[Any, Any]] = {}

    def field(self, node: Node, key: Key) -> Any:
        """The value of a field.

        Raises:
          Exception: Whatever evaluating a reference raises.
        """
        raw = node._fields[key]
        if type(raw) in LEAF_TYPES or not is_reference(raw):
            return raw
        place = (id(node), key)
        if place not in self._seen:
            self._seen[place] = (node, node[key])
        return self._seen[place][1]

    def item(self, holder: Any, index: int, owner: Node | None) -> Any:
        """An item of a list or tuple that is stored in `owner`.

        What was appended to a stored list (a proxy, a plain dict) is converted as if
        it had been assigned.
        """
        raw = holder[index]
        if type(raw) in LEAF_TYPES or isinstance(raw, Node):
            return raw
        if type(raw) in (list, tuple) or owner is None:
            return raw
        place = (id(holder), index)
        if place not in self._seen:
            value = raw.get() if is_reference(raw) else raw
            with contextlib.suppress(ValueError):  # real objects stay what they are
                value = owner._konfig_normalized(value, index)  # pyright: ignore
            self._seen[place] = (holder, value)
        return self._seen[place][1]
