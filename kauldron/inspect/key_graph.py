"""Which part of an experiment reads what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kauldron import kontext
from kauldron.inspect.dot_graphs import make_graph

if TYPE_CHECKING:
    from kauldron.train import Trainer

_COLORS = {
    "model": "lightblue",
    "losses": "salmon",
    "metrics": "palegreen",
    "summaries": "khaki",
}
_MADE_BY_MODEL = ("preds", "interms", "params", "collections")


def get_connection_graph(trainer: Trainer) -> Any:
    """The model, the losses, metrics and summaries, and the keys that join them.

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
    """Node, group, label and object of everything that reads keys."""
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
    """Argument and key of everything that a part reads."""
    if not kontext.is_key_annotated(part):
        return [("", "batch")]  # a model without keys gets the whole batch
    flat = kontext.flatten_with_path(kontext.get_keypaths(part))
    return [(name, str(key)) for name, key in flat.items() if key]
