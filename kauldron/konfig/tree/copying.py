"""Copies of nodes: shallow, deep, pickled, and the start from default values.

Deep copies of references follow the copy of their root, if it is copied too. While a
tree is deep-copied, a reference may be met before the node it starts from. Then it is
noted in the memo of `copy.deepcopy`, and moved when that node is copied. A root that is
never copied lies outside of the tree: the reference stays attached to it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kauldron.konfig.tree.history import field_events
from kauldron.konfig.tree.node import (
    Node,
    Unreadable,
    Walk,
    nodes_below,
    remember_parent,
)

N = TypeVar("N", bound=Node)


def _new_like(node: N) -> N:
    """Return an empty node with the same class, origin, history and locks."""
    new = type(node).__new__(type(node))
    Node.__init__(new)
    state = node.__dict__
    history = state["_konfig_history"]
    new.__dict__.update(
        {
            **{k: v for k, v in state.items() if not k.startswith("_konfig_")},
            "_fields": {},
            "_konfig_origin": state["_konfig_origin"],
            "_konfig_history": None if history is None else dict(history),
        }
    )
    return new


def shallow_copy(node: N) -> N:
    """Return a new node with the same children; its lists are copied."""
    new = _new_like(node)
    for key, value in node._fields.items():
        new._fields[key] = list(value) if type(value) is list else value
        remember_parent(value, new)
    return new


def deep_copy(node: N, memo: dict[int, Any]) -> N:
    """Return an independent tree with the same sharing, cycles and references."""
    new = _new_like(node)
    _fill_with_copies(new, node, memo)
    return new


def _fill_with_copies(new: Node, node: Node, memo: dict[int, Any]) -> None:
    root_was_copied(node, new, memo)
    for key, value in node._fields.items():
        copied = copy.deepcopy(value, memo)
        new._fields[key] = copied
        remember_parent(copied, new)


def start_from_defaults(node: Node, default: Node) -> None:
    """Fill an empty node with a deep copy of registered default values."""
    created = node._konfig_origin
    _fill_with_copies(node, default, {})
    if created is None:
        return
    event = created._replace(kind="default")
    for copied in nodes_below(node):
        copied.__dict__.update(_konfig_origin=event, _konfig_history=None)
    events = {key: field_events(node, key) for key in node._fields}
    node.__dict__.update(_konfig_origin=created, _konfig_history=events)


def without_references(node: N, done: dict[int, Any] | None = None) -> N:
    """Return a deep copy with the current values for references."""
    return _rebuilt(node, _new_like, {} if done is None else done)


def as_dicts(
    node: Node, done: dict[int, Any] | None, keep_references: bool
) -> dict[Any, Any]:
    """Return nested plain dicts; shared nodes become shared dicts."""
    return _rebuilt(node, lambda _: {}, {} if done is None else done, keep_references)


def _rebuilt(
    value: Any,
    make: Callable[[Node], Any],
    done: dict[int, Any],
    keep_references: bool = False,
) -> Any:
    """Return a tree with new nodes or dicts, which `make` gives empty."""
    walk = Walk()  # keeps what references evaluate to, so that no id is used twice

    def rebuilt(value: Any) -> Any:
        if isinstance(value, Unreadable):
            raise value.error
        if type(value) in (list, tuple):
            items = value if keep_references else walk.values(value).values()
            return type(value)([rebuilt(item) for item in items])
        if not isinstance(value, Node):
            return value
        if id(value) not in done:
            new = done[id(value)] = make(value)
            fields = new._fields if isinstance(new, Node) else new
            inside = value._fields if keep_references else walk.values(value)
            for key, item in inside.items():
                fields[key] = rebuilt(item)
                if isinstance(new, Node):
                    remember_parent(fields[key], new)
        return done[id(value)]

    return rebuilt(value)


# ------------------------------------------------------------------------------------
# Pickle
# ------------------------------------------------------------------------------------


def pickled_state(node: Node) -> dict[str, Any]:
    """Return what is pickled: all but where fields were set."""
    return {
        "_fields": node._fields,
        "_locked": node.is_locked,
        "_type_safe": node.is_type_safe,
    }


def restore_state(node: Node, state: Mapping[str, Any]) -> None:
    """Restore what `pickled_state` gave."""
    Node.__init__(node)
    # The dict itself, not a copy: with cycles it may be filled after this call.
    node.__dict__.update(
        _fields=state["_fields"],
        _locked=state["_locked"],
        _type_safe=state["_type_safe"],
    )
    remember_parent(list(state["_fields"].values()), node)


_PENDING: Any = "konfig references whose root is not copied yet"


def reroot_when_copied(reference: Any, root: Node, memo: dict[int, Any]) -> None:
    """Make the copied `reference` start from the copy of `root`, now or later."""
    if id(root) in memo:
        reference.__dict__["_konfig_base"] = memo[id(root)]
    else:
        memo.setdefault(_PENDING, {}).setdefault(id(root), []).append(reference)


def root_was_copied(root: Node, copied: Node, memo: dict[int, Any]) -> None:
    """Note that `copied` is the copy of `root`, for references that wait for it."""
    memo[id(root)] = copied
    for reference in memo.get(_PENDING, {}).pop(id(root), ()):
        reference.__dict__["_konfig_base"] = copied
