"""`repr` of configs: the calls they stand for. Never raises."""

from __future__ import annotations

from typing import Any

from ml_collections import FieldReference

from kauldron.immutabledict import block
from kauldron.konfig.symbols import display_name
from kauldron.konfig.tree.field_types import type_name
from kauldron.konfig.tree.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Node,
    Unreadable,
    Walk,
    raw_value,
)
from kauldron.konfig.tree.placeholders import is_shared, is_unset_required
from kauldron.konfig.tree.references import Reference


def format_value(value: Any) -> str:
    """Return a config, or any value in one, as text."""
    printer = _Printer()
    printer.count(value)
    return printer.text(value)


class _Broken(str):
    """Stands for a reference that has no value; printed as it is."""

    __repr__ = str.__str__


class _Printer:
    """Prints one value; the first pass finds what occurs more than once."""

    def __init__(self) -> None:
        self.walk = Walk()
        self.counts: dict[int, int] = {}
        self.names: dict[int, str] = {}  # of what occurs more than once and is printed
        self.alive: list[Any] = []

    # --------------------------------------------------------------------------------
    # What stands where
    # --------------------------------------------------------------------------------

    def children(self, value: Any) -> list[tuple[Any, Any]]:
        """Return the keys and values inside a node or sequence."""
        return [
            (key, _printed(raw_value(value, key), item))
            for key, item in self.walk.values(value).items()
        ]

    def count(self, value: Any) -> None:
        if not _can_repeat(value):
            return
        self.counts[id(value)] = self.counts.get(id(value), 0) + 1
        if self.counts[id(value)] > 1:
            return
        self.alive.append(value)
        if isinstance(value, FieldReference):
            self.count(self.shared_value(value))
            return
        for _, child in self.children(value):
            self.count(child)

    def shared_value(self, reference: Any) -> Any:
        if is_unset_required(reference):
            return _Broken(f"<required: {type_name(reference.get_type())}>")
        try:
            return reference.get()
        except Exception:
            return _Broken(_broken_text(reference))

    # --------------------------------------------------------------------------------
    # Text
    # --------------------------------------------------------------------------------

    def text(self, value: Any) -> str:
        if self.counts.get(id(value), 0) <= 1 or not _is_marked(value):
            return self.body(value)
        if id(value) in self.names:
            return f"*{self.names[id(value)]}"
        name = self.names[id(value)] = f"id{len(self.names) + 1:03}"
        return f"&{name} {self.body(value)}"

    def body(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.node_text(value)
        if isinstance(value, FieldReference):
            if is_shared(value):
                return self.text(self.shared_value(value))
            return _broken_text(value)
        if type(value) is list:
            texts = [self.text(child) for _, child in self.children(value)]
            return block("[", texts, "]")
        if type(value) is tuple:
            texts = [self.text(child) for _, child in self.children(value)]
            return f"({texts[0]},)" if len(texts) == 1 else block("(", texts, ")")
        return _leaf_text(value)

    def node_text(self, node: Node) -> str:
        fields = node._fields
        const, symbol = fields.get(CONST_KEY), fields.get(QUALNAME_KEY)
        if isinstance(const, str) and len(fields) == 1:
            return display_name(const)
        children = self.children(node)
        if not isinstance(symbol, str):
            texts = [f"{key!r}: {self.text(child)}" for key, child in children]
            return block("{", texts, "}")
        texts = []
        for key, child in children:
            if key != QUALNAME_KEY:
                text = self.text(child)
                positional = isinstance(key, str) and key.isdecimal()
                texts.append(text if positional else f"{key}={text}")
        return block(f"{display_name(symbol)}(", texts, ")")


def _printed(raw: Any, value: Any) -> Any:
    if raw is not value:
        if is_shared(raw):
            return raw
        if isinstance(value, Unreadable):
            return _Broken(_broken_text(raw))
    return value


def _can_repeat(value: Any) -> bool:
    """Return whether it matters that two fields hold the very same value."""
    return isinstance(value, (Node, list, tuple)) or is_shared(value)


def _is_marked(value: Any) -> bool:
    return not isinstance(value, tuple) and _can_repeat(value)


def _leaf_text(value: Any) -> str:
    if value is ...:
        return "..."
    symbol = getattr(type(value), "__konfig_symbol__", None)
    if symbol is not None:
        return display_name(symbol(value))
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _broken_text(reference: Any) -> str:
    target = reference._konfig_text("") if isinstance(reference, Reference) else "?"
    return f"<unresolved ref: {target}>"
