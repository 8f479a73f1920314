"""A config as text, with where each line was set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron.konfig.file_names import short_file
from kauldron.konfig.flattening import as_config
from kauldron.konfig.outline import Entry, outline
from kauldron.konfig.set_events import SetEvent

_WIDTH = 60


def to_text(cfg: Any, *, history: bool = True) -> str:
    """A config, one field per line, in the order of its fields.

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
    """Leaves, and short lists of leaves that were set together."""
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


def describe_origin(event: SetEvent) -> str:
    """`set by --cfg.a=1` or `set at configs/a.py:12`, as short as it gets."""
    if event.text is not None:
        return f"set by {event.text}"
    if event.file is None:
        return "set at an unknown place"
    return f"set at {short_file(event.file)}:{event.line}"
