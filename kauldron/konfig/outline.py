"""A config as a tree of lines to show, for text and HTML alike. Never raises."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from kauldron import path_grammar
from kauldron.konfig.aliases import display_name
from kauldron.konfig.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Node,
    expression,
    is_call,
    is_const,
    raw_fields,
)
from kauldron.konfig.pathing import Parts, children, key_of, raw_child
from kauldron.konfig.placeholders import is_shared, is_unset_required
from kauldron.konfig.references import Reference
from kauldron.konfig.repr_text import format_value
from kauldron.konfig.set_events import SetEvent, field_events, node_origin


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One field, item or node.

    Attributes:
      path: Where it is.
      label: What stands in front of the value: `name=`, `'key': ` or nothing.
      text: The value of a leaf; what a container begins with, such as `nn.Dense(`.
      closing: What a container ends with; empty for a leaf.
      children: What is inside.
      origin: What wrote it, as far as it is known.
      reference: The expression, if the value is computed from others.
    """

    path: str
    label: str
    text: str
    closing: str = ""
    children: tuple[Entry, ...] = ()
    origin: SetEvent | None = None
    reference: str | None = None

    @property
    def is_overridden(self) -> bool:
        """Whether a flag or a sweep set it."""
        return self.origin is not None and self.origin.kind in ("cli", "sweep")


def outline(cfg: Node) -> Entry:
    """The tree of a config. A node or list that occurs again is only named."""
    place = _Place(parts=(), node=cfg, keys=())
    return _Outliner().entry(cfg, place, "", node_origin(cfg), None)


class _Place(NamedTuple):
    """Where a value is: from the root, and from the innermost node above it."""

    parts: Parts
    node: Node
    keys: tuple[Any, ...]

    def below(self, holder: Any, part: Any) -> _Place:
        parts = (*self.parts, part)
        if isinstance(holder, Node):
            return _Place(parts, holder, (key_of(holder, part),))
        return _Place(parts, self.node, (*self.keys, part))

    def origin(self) -> SetEvent | None:
        """The last write of the value, if it was written by itself."""
        keys = self.keys
        events = field_events(self.node, keys[0] if len(keys) == 1 else keys)
        return events[-1] if events else None


class _Outliner:
    def __init__(self) -> None:
        self.shown: dict[int, Parts] = {}

    def entry(
        self,
        value: Any,
        place: _Place,
        label: str,
        origin: SetEvent | None,
        reference: str | None,
    ) -> Entry:
        text, closing, below = self.body(value, place, origin)
        return Entry(
            path=path_grammar.format_path(place.parts),
            label=label,
            text=text,
            closing=closing,
            children=below,
            origin=origin,
            reference=reference,
        )

    def body(
        self, value: Any, place: _Place, origin: SetEvent | None
    ) -> tuple[str, str, tuple[Entry, ...]]:
        """Opening text, closing text and children; a leaf has the first alone."""
        is_leaf = not isinstance(value, (Node, list, tuple))
        if is_leaf or (isinstance(value, Node) and is_const(value)):
            return format_value(value), "", ()
        if not isinstance(value, tuple) and id(value) in self.shown:
            return f"<same as {expression(self.shown[id(value)])}>", "", ()
        self.shown[id(value)] = place.parts
        opening, closing = _brackets(value)
        below = tuple(
            self.child(value, part, item, place, origin)
            for part, item in children(value)
            if part != QUALNAME_KEY
        )
        return (opening, closing, below) if below else (opening + closing, "", ())

    def child(
        self, holder: Any, part: Any, item: Any, around: _Place, origin: SetEvent | None
    ) -> Entry:
        place = around.below(holder, part)
        raw = raw_child(holder, part)
        if is_unset_required(raw):
            item = raw
        return self.entry(
            item,
            place,
            _label(holder, part),
            place.origin() or origin,
            _written_as(raw),
        )


def _written_as(raw: Any) -> str | None:
    """The expression of a reference; None for values and for placeholders."""
    if not isinstance(raw, Reference) or is_shared(raw):
        return None
    return raw._konfig_text()


def _brackets(value: Any) -> tuple[str, str]:
    if isinstance(value, Node):
        if not is_call(value):
            return "{", "}"
        return f"{display_name(str(raw_fields(value)[QUALNAME_KEY]))}(", ")"
    return ("[", "]") if isinstance(value, list) else ("(", ")")


def _label(holder: Any, part: Any) -> str:
    if not isinstance(holder, Node):
        return ""
    if is_call(holder):
        return "" if isinstance(part, int) else f"{part}="
    return f"{part!r}: " if part != CONST_KEY else ""
