"""Equality of configs."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.symbols import same_qualname
from kauldron.konfig.tree.node import (
    CONST_KEY,
    LEAF_TYPES,
    QUALNAME_KEY,
    Node,
    Unreadable,
    Walk,
)
from kauldron.konfig.tree.storing import is_mapping


def equal(a: Node, b: Any) -> bool:
    """Return whether two configs mean the same. Never raises.

    Key order does not matter; references count as their current value; a plain mapping
    or a proxy is compared as the config it would make.
    """
    if not isinstance(b, Node):
        as_konfig = getattr(type(b), "__as_konfig__", None)
        if as_konfig is not None:  # a proxy, as it would be stored
            b = as_konfig(b)
        if not is_mapping(b):
            return False
        try:
            b = type(a)(b)  # pyright: ignore[reportCallIssue]
        except Exception:
            return False  # it holds what no config can hold
    return _equal(a, b, Walk(), set())


def _equal(a: Any, b: Any, walk: Walk, assumed: set[tuple[int, int]]) -> bool:
    """Compare two values; pairs met before are assumed equal unless they differ there."""
    if a is b:
        return True
    if type(a) in LEAF_TYPES and type(b) in LEAF_TYPES:
        return a == b
    if isinstance(a, Unreadable) and isinstance(b, Unreadable):
        return _reason(a) == _reason(b)
    is_node = isinstance(a, Node)
    if is_node != isinstance(b, Node):
        return False
    if not is_node and not isinstance(a, (list, tuple)):
        try:
            return bool(a == b)
        except Exception:
            return False
    if a.is_locked != b.is_locked if is_node else type(a) is not type(b):
        return False
    if (id(a), id(b)) in assumed:
        return True
    assumed.add((id(a), id(b)))
    x, y = walk.values(a), walk.values(b)
    return x.keys() == y.keys() and all(
        same_qualname(x[key], y[key])
        if key in (QUALNAME_KEY, CONST_KEY)
        else _equal(x[key], y[key], walk, assumed)
        for key in x
    )


def _reason(value: Unreadable) -> tuple[str, Any]:
    """Return what makes references equal that are dangling, unset or cyclic."""
    return type(value.error).__name__, getattr(value.error, "name", None)
