"""A config as a graph in the language of graphviz."""

from __future__ import annotations

from typing import Any

from kauldron import path_grammar
from kauldron.konfig.aliases import display_name
from kauldron.konfig.flattening import as_config
from kauldron.konfig.node import QUALNAME_KEY, Node, is_call, is_const, raw_fields
from kauldron.konfig.pathing import children
from kauldron.konfig.repr_text import format_value
from kauldron.konfig.set_events import short_repr


def to_dot(cfg: Any) -> str:
    """The nodes of a config and how they hang together, as graphviz source.

    A node that is used in several places is drawn once. Values are written into the
    box of the node they belong to.

    Args:
      cfg: A config.

    Returns:
      Text for `dot -Tsvg`, or for any other program that reads this language.

    Example:
      >>> print(to_dot({"__qualname__": "m:f", "x": 1}))
      digraph config {
        node [shape=box fontname=monospace];
        n0 [label="m.f\\lx = 1\\l"];
      }
    """
    graph = _Graph()
    graph.add(as_config(cfg))
    body = "".join(f"  {line}\n" for line in graph.lines)
    return f"digraph config {{\n  node [shape=box fontname=monospace];\n{body}}}"


class _Graph:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.alive: list[Node] = []  # so that no other node gets the same id
        self.open_lists: set[int] = set()

    def add(self, node: Node) -> str:
        """Draws a node, unless it is drawn already; returns its name."""
        if id(node) in self.names:
            return self.names[id(node)]
        name = self.names[id(node)] = f"n{len(self.names)}"
        self.alive.append(node)
        at = len(self.lines)
        rows = [_title(node)]
        for part, value in children(node):
            if part != QUALNAME_KEY:
                label = path_grammar.format_part(part).removeprefix(".")
                self.add_value(name, label, value, rows)
        text = "".join(f"{_escaped(row)}\\l" for row in rows)
        self.lines.insert(at, f'{name} [label="{text}"];')
        return name

    def add_value(self, name: str, label: str, value: Any, rows: list[str]) -> None:
        if isinstance(value, Node) and not is_const(value):
            below = self.add(value)
            self.lines.append(f'{name} -> {below} [label="{_escaped(label)}"];')
        elif _holds_node(value, ()) and id(value) not in self.open_lists:
            self.open_lists.add(id(value))
            for index, item in children(value):
                self.add_value(name, f"{label}[{index}]", item, rows)
            self.open_lists.discard(id(value))
        else:
            rows.append(f"{label} = {_one_line(value)}")


def _title(node: Node) -> str:
    if is_call(node):
        return display_name(str(raw_fields(node)[QUALNAME_KEY]))
    return "dict"


def _holds_node(value: Any, above: tuple[int, ...]) -> bool:
    if isinstance(value, (list, tuple)) and id(value) not in above:
        return any(_holds_node(item, (*above, id(value))) for item in value)
    return isinstance(value, Node) and not is_const(value)


def _one_line(value: Any) -> str:
    text = format_value(value)
    return text if len(text) <= 60 and "\n" not in text else short_repr(value, 60)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
