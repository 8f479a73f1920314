"""Equality of configs."""

from __future__ import annotations

from typing import Any

from ml_collections import FieldReference

from kauldron.konfig.symbols import same_qualname
from kauldron.konfig.tree.node import CONST_KEY, QUALNAME_KEY, Node
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
    return _Comparison().equal(a, b)


class _Comparison:
    """One comparison; remembers the pairs it is in the middle of."""

    def __init__(self) -> None:
        self.assumed: set[tuple[int, int]] = set()

    def equal(self, a: Any, b: Any) -> bool:
        if a is b:
            return True
        if isinstance(a, FieldReference) or isinstance(b, FieldReference):
            return self.references(a, b)
        if isinstance(a, Node) or isinstance(b, Node):
            return isinstance(a, Node) and isinstance(b, Node) and self.nodes(a, b)
        if isinstance(a, (list, tuple)):
            return type(a) is type(b) and self.sequences(a, b)
        try:
            return bool(a == b)
        except Exception:
            return False

    def references(self, a: Any, b: Any) -> bool:
        values = []
        for value in (a, b):
            try:
                values.append(
                    value.get() if isinstance(value, FieldReference) else value
                )
            except Exception as error:  # dangling, unset or cyclic: equal to the same
                values.append((type(error).__name__, getattr(error, "name", None)))
        return self.equal(*values)

    def assume(self, a: Any, b: Any) -> bool:
        """Return whether a pair was met before: equal unless it differs elsewhere."""
        pair = (id(a), id(b))
        if pair in self.assumed:
            return True
        self.assumed.add(pair)
        return False

    def sequences(self, a: Any, b: Any) -> bool:
        if len(a) != len(b):
            return False
        return self.assume(a, b) or all(self.equal(x, y) for x, y in zip(a, b))

    def nodes(self, a: Node, b: Node) -> bool:
        if self.assume(a, b):
            return True
        x, y = a._fields, b._fields
        return (
            a.is_locked == b.is_locked
            and x.keys() == y.keys()
            and all(self.field(key, x[key], y[key]) for key in x)
        )

    def field(self, key: Any, a: Any, b: Any) -> bool:
        if key in (QUALNAME_KEY, CONST_KEY):
            return same_qualname(a, b)
        return self.equal(a, b)
