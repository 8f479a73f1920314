"""Which part of an experiment reads what, as a graph; schedules, as a chart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from etils import epath

from kauldron import kontext
from kauldron.inspect.views import make_table, rows_of

if TYPE_CHECKING:
    from kauldron.train import Trainer

#
# The keys of an experiment
#


_COLORS = {
    "model": "lightblue",
    "losses": "salmon",
    "metrics": "palegreen",
    "summaries": "khaki",
}
_MADE_BY_MODEL = ("preds", "interms", "params", "collections")


def get_connection_graph(trainer: Trainer) -> Any:
    """Return the model, the losses, metrics and summaries, and the keys that join them.

    Boxes are keys; an arrow into a part carries the name of the argument that the key
    fills. Names of nodes start with their group: `losses/l2`, `summaries/l2`.

    Args:
      trainer: The experiment.

    Returns:
      A `graphviz.Digraph`, which a notebook draws. Without graphviz, an object with the
      same `source` (DOT) and `save`.
    """
    graph = make_graph("keys")
    keys: dict[str, str] = {}

    def key_node(key: str) -> str:
        if key not in keys:
            # A number: graphviz would read a colon in the key as the end of the name.
            keys[key] = f"key/{len(keys)}"
            graph.node(keys[key], label=key, shape="box")
            if key.split(".")[0].split("[")[0] in _MADE_BY_MODEL:
                graph.edge("model", keys[key])
        return keys[key]

    for node, group, label, part in _parts(trainer):
        style = {"style": "filled", "fillcolor": _COLORS[group]}
        graph.node(node, label=f"{label}\n{type(part).__name__}", **style)
        for argument, key in _keys_of(part):
            graph.edge(key_node(key), node, label=argument)
    return graph


def _parts(trainer: Trainer) -> Iterator[tuple[str, str, str, Any]]:
    """Yield node, group, label and object of everything that reads keys."""
    if trainer.model is not None:
        yield "model", "model", "model", trainer.model
    groups = {
        "losses": trainer.train_losses,
        "metrics": trainer.train_metrics,
        "summaries": trainer.train_summaries,
    }
    for group, parts in groups.items():
        for name, part in _leaves(parts):
            yield f"{group}/{name}", group, name, part


def _leaves(parts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, part in parts.items():
        if isinstance(part, Mapping):
            yield from _leaves(part, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", part


def _keys_of(part: Any) -> list[tuple[str, str]]:
    """Return argument and key of everything that a part reads."""
    if not kontext.is_key_annotated(part):
        return [("", "batch")]  # a model without keys gets the whole batch
    flat = kontext.flatten_with_path(kontext.get_keypaths(part))
    return [(name, str(key)) for name, key in flat.items() if key]


#
# Graphs: a `graphviz.Digraph` where graphviz is installed, plain DOT elsewhere
#


def make_graph(name: str) -> Any:
    """Return an empty directed graph, drawn from left to right.

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


#
# Schedules over the steps of a run
#


_NUM_POINTS = 1000
_DEFAULT_STEPS = 1000
_COLUMNS: tuple[str, ...] = ("step", "schedule", "value")


def plot_schedules(schedules: Any, num_steps: int | None = None) -> Any:
    """Chart schedules from step 0 to `num_steps`.

    Args:
      schedules: Schedules by name (nested names are joined by `/`), or a single one.
      num_steps: The last step; 1000 if it is not known.

    Returns:
      An Altair chart of 1000 points per schedule. Without Altair, the table that it
      shows: `step`, `schedule`, `value`.
    """
    table = schedule_table(schedules, num_steps)
    try:
        import altair
    except ImportError:
        return table
    data = altair.InlineData(values=rows_of(table)[1])
    return (
        altair.Chart(data)
        .mark_line()
        .encode(x="step:Q", y="value:Q", color="schedule:N")
        .properties(width=600)
        .interactive()
    )


def schedule_table(schedules: Any, num_steps: int | None = None) -> Any:
    """Return the values that `plot_schedules` shows."""
    if not isinstance(schedules, Mapping):
        schedules = {"schedule": schedules}
    last = _DEFAULT_STEPS if num_steps is None else num_steps
    steps = np.rint(np.linspace(0, last, _NUM_POINTS)).astype(np.int32)
    rows = [
        dict(zip(_COLUMNS, (int(step), name, float(value))))
        for name, schedule in kontext.flatten_with_path(
            schedules, separator="/"
        ).items()
        for step, value in zip(steps, _values(schedule, steps))
    ]
    return make_table(_COLUMNS, rows)


def _values(schedule: Any, steps: np.ndarray) -> np.ndarray:
    """Evaluate in one call where the schedule can be traced; else one by one."""
    try:
        return np.asarray(jax.vmap(schedule)(steps))
    except Exception:  # Python code that needs a number; its own errors are raised
        return np.array([float(schedule(int(step))) for step in steps])
