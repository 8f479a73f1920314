"""A config as a tree of lines to show, and as text that tells where each was set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from kauldron import path_grammar
from kauldron.konfig.symbols import display_name
from kauldron.konfig.text.printing import format_value
from kauldron.konfig.tree.configdict import as_config
from kauldron.konfig.tree.history import (
    SetEvent,
    describe_origin,
    field_events,
)
from kauldron.konfig.tree.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Child,
    Node,
    Parts,
    Walk,
    expression,
    is_call,
    is_const,
)
from kauldron.konfig.tree.placeholders import is_shared, is_unset_required
from kauldron.konfig.tree.references import Reference

_WIDTH = 60


def to_text(cfg: Any, *, history: bool = True) -> str:
    """Return a config, one field per line, in the order of its fields.

    Args:
      cfg: A config.
      history: Whether each line tells where it was set: `# set at file:line`, or
        `# set by --cfg.a=1`.

    Returns:
      The text.

    Example:
      >>> from kauldron import konfig
      >>> print(to_text(konfig.ConfigDict({"a": {"b": 1}}), history=False))
      {
          'a': {
              'b': 1,
          },
      }
    """
    lines = list(_lines(outline(as_config(cfg)), 0))
    if not history:
        return "\n".join(text for text, _ in lines)
    width = min(max((len(text) for text, _ in lines), default=0), _WIDTH)
    return "\n".join(_with_origin(text, entry, width) for text, entry in lines)


def _lines(entry: Entry, depth: int) -> Iterator[tuple[str, Entry | None]]:
    indent, comma = "    " * depth, "," if depth else ""
    if _fits_on_one_line(entry):
        yield f"{indent}{entry.label}{_one_line(entry)}{comma}", entry
        return
    yield f"{indent}{entry.label}{entry.text}", entry
    for child in entry.children:
        yield from _lines(child, depth + 1)
    yield f"{indent}{entry.closing}{comma}", None


def _fits_on_one_line(entry: Entry) -> bool:
    """Return whether it is a leaf or a short list of leaves set together."""
    if not entry.children:
        return True
    is_plain = all(
        not child.children and not child.label and child.origin == entry.origin
        for child in entry.children
    )
    is_list = entry.text in ("[", "(")
    return is_list and is_plain and len(_one_line(entry)) <= _WIDTH


def _one_line(entry: Entry) -> str:
    items = ", ".join(child.text for child in entry.children)
    if entry.text == "(" and len(entry.children) == 1:
        items += ","
    return f"{entry.text}{items}{entry.closing}"


def _with_origin(text: str, entry: Entry | None, width: int) -> str:
    if entry is None or entry.origin is None:
        return text
    notes = [f"= {entry.reference}"] if entry.reference else []
    notes += [describe_origin(entry.origin)]
    return f"{text:<{width}}  # {', '.join(notes)}"


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
    """Return the tree of a config. A node or list that occurs again is only named."""
    return _Outliner().entry(cfg, "", cfg._konfig_origin, None)


class _Outliner:
    def __init__(self) -> None:
        self.walk = Walk()
        self.shown: dict[int, Parts] = {}

    def entry(
        self, value: Any, label: str, origin: SetEvent | None, reference: str | None
    ) -> Entry:
        at = self.walk.parts()
        closing, below = "", ()
        is_leaf = not isinstance(value, (Node, list, tuple))
        if is_leaf or (isinstance(value, Node) and is_const(value)):
            text = format_value(value)
        elif not isinstance(value, tuple) and id(value) in self.shown:
            text = f"<same as {expression(self.shown[id(value)])}>"
        else:
            self.shown[id(value)] = at
            text, closing = _brackets(value)
            below = tuple(
                self.child(value, child, origin)
                for child in self.walk.children(value)
                if child.key != QUALNAME_KEY
            )
            if not below:
                text, closing = text + closing, ""
        return Entry(
            path=path_grammar.format_path(at),
            label=label,
            text=text,
            closing=closing,
            children=below,
            origin=origin,
            reference=reference,
        )

    def child(self, holder: Any, child: Child, origin: SetEvent | None) -> Entry:
        self.walk.around.append((holder, child.key))
        entry = self.entry(
            child.raw if is_unset_required(child.raw) else child.value,
            _label(holder, child.part),
            self.last_write() or origin,
            _written_as(child.raw),
        )
        self.walk.around.pop()
        return entry

    def last_write(self) -> SetEvent | None:
        """Return the last write of the current value, if it was written by itself."""
        keys: tuple[Any, ...] = ()
        for container, key in reversed(self.walk.around):
            keys = (key, *keys)
            if isinstance(container, Node):
                events = field_events(container, key if len(keys) == 1 else keys)
                return events[-1] if events else None
        return None


def _written_as(raw: Any) -> str | None:
    """Return the expression of a reference; None for values and for placeholders."""
    if not isinstance(raw, Reference) or is_shared(raw):
        return None
    return raw._konfig_text()


def _brackets(value: Any) -> tuple[str, str]:
    if isinstance(value, Node):
        if not is_call(value):
            return "{", "}"
        return f"{display_name(str(value._fields[QUALNAME_KEY]))}(", ")"
    return ("[", "]") if isinstance(value, list) else ("(", ")")


def _label(holder: Any, part: Any) -> str:
    if not isinstance(holder, Node):
        return ""
    if is_call(holder):
        return "" if isinstance(part, int) else f"{part}="
    return f"{part!r}: " if part != CONST_KEY else ""
