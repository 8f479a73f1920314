"""Equality of configs."""

from __future__ import annotations

from typing import Any, TypeAlias

from ml_collections import FieldReference

from kauldron.konfig.symbols import same_qualname
from kauldron.konfig.tree.node import CONST_KEY, QUALNAME_KEY, Node
from kauldron.konfig.tree.storing import is_mapping

# What is being compared already, by the ids of both: equal unless it differs elsewhere.
# With the values themselves, so that their ids are not used again.
_Assumed: TypeAlias = dict[tuple[int, int], tuple[Any, Any]]


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
    return _equal(a, b, {})


def _equal(a: Any, b: Any, assumed: _Assumed) -> bool:
    if a is b:
        return True
    if isinstance(a, FieldReference) or isinstance(b, FieldReference):
        return _equal(_current(a), _current(b), assumed)
    is_node = isinstance(a, Node)
    if is_node != isinstance(b, Node):
        return False
    if not is_node and not isinstance(a, (list, tuple)):
        try:
            return bool(a == b)
        except Exception:
            return False
    if (id(a), id(b)) in assumed:
        return True
    assumed[id(a), id(b)] = (a, b)
    if is_node:
        return _equal_nodes(a, b, assumed)
    is_alike = type(a) is type(b) and len(a) == len(b)
    return is_alike and all(_equal(x, y, assumed) for x, y in zip(a, b))


def _equal_nodes(a: Node, b: Node, assumed: _Assumed) -> bool:
    x, y = a._fields, b._fields
    return (
        a.is_locked == b.is_locked
        and x.keys() == y.keys()
        and all(
            same_qualname(x[key], y[key])
            if key in (QUALNAME_KEY, CONST_KEY)
            else _equal(x[key], y[key], assumed)
            for key in x
        )
    )


def _current(value: Any) -> Any:
    """Return what a reference evaluates to; why, if it cannot be evaluated."""
    try:
        return value.get() if isinstance(value, FieldReference) else value
    except Exception as error:  # dangling, unset or cyclic: equal to the same
        return type(error).__name__, getattr(error, "name", None)
