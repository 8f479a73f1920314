"""Graphs: a `graphviz.Digraph` where graphviz is installed, plain DOT elsewhere."""

from __future__ import annotations

import json
from typing import Any

from etils import epath


def make_graph(name: str) -> Any:
    """An empty directed graph, drawn from left to right.

    Returns:
      A `graphviz.Digraph`; without graphviz, a `DotGraph`, which has the same `node`,
      `edge`, `source` and `save`.
    """
    try:
        import graphviz
    except ImportError:
        return DotGraph(name)
    return graphviz.Digraph(name, graph_attr={"rankdir": "LR"})


class DotGraph:
    """A graph in the DOT language, which many programs draw.

    Example:
      >>> graph = DotGraph("keys")
      >>> graph.node("a", label="A")
      >>> graph.edge("a", "b", label="x")
      >>> print(graph.source)
      digraph keys {
        graph [rankdir=LR]
        "a" [label="A"]
        "a" -> "b" [label="x"]
      }
    """

    def __init__(self, name: str):
        self._name = name
        self.body: list[str] = []

    def node(self, name: str, label: str | None = None, **attributes: str) -> None:
        """Add a node, or tell more about one."""
        self.body.append(f"{_quoted(name)}{_attributes(label, attributes)}")

    def edge(
        self, tail_name: str, head_name: str, label: str | None = None, **attrs: str
    ) -> None:
        """Add an arrow."""
        arrow = f"{_quoted(tail_name)} -> {_quoted(head_name)}"
        self.body.append(f"{arrow}{_attributes(label, attrs)}")

    @property
    def source(self) -> str:
        """The graph in the DOT language."""
        lines = [f"  {line}\n" for line in ("graph [rankdir=LR]", *self.body)]
        return f"digraph {self._name} {{\n{''.join(lines)}}}"

    def save(self, filename: epath.PathLike) -> str:
        """Write the source to a file, for `dot -Tsvg` or a viewer."""
        epath.Path(filename).write_text(self.source)
        return str(filename)

    def __repr__(self) -> str:
        return self.source


def _attributes(label: str | None, attributes: dict[str, str]) -> str:
    given = ({} if label is None else {"label": label}) | attributes
    if not given:
        return ""
    return f" [{' '.join(f'{key}={_quoted(v)}' for key, v in given.items())}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
