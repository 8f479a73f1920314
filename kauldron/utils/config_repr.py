"""Dataclasses as indented text, and as a foldable tree in notebooks."""

from __future__ import annotations

import dataclasses
import html
import reprlib
from typing import Any

_INDENT = " " * 4


@reprlib.recursive_repr(fillvalue="...")
def as_text(obj: Any) -> str:
    """`Name(...)` with one field per line; a single short field stays on the line."""
    items = [f"{name}={value!r}" for name, value in _shown_fields(obj)]
    name = type(obj).__qualname__
    if len(items) <= 1 and not any("\n" in item for item in items):
        return f"{name}({''.join(items)})"
    lines = "".join(f"{item},\n" for item in items)
    return f"{name}(\n{_indent(lines)})"


@reprlib.recursive_repr(fillvalue="...")
def as_html(obj: Any) -> str:
    """The same, with longer fields folded."""
    rows = "".join(
        f"<li>{_html_field(name, value)}</li>" for name, value in _shown_fields(obj)
    )
    title = html.escape(type(obj).__qualname__)
    return f"<details open><summary>{title}</summary><ul>{rows}</ul></details>"


def _shown_fields(obj: Any) -> list[tuple[str, Any]]:
    return [(f.name, getattr(obj, f.name)) for f in dataclasses.fields(obj) if f.repr]


def _html_field(name: str, value: Any) -> str:
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return f"{name} = <code>{html.escape(text)}</code>"
    summary = html.escape(type(value).__qualname__)
    return (
        f"<details><summary>{name} = {summary}</summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )


def _indent(text: str) -> str:
    return "".join(_INDENT + line for line in text.splitlines(keepends=True))
