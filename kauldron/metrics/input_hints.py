"""What to do about inputs that are not what a metric takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kauldron import kontext

_MAX_PATHS = 4


def input_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """Lines to put below the message of a failed type check.

    Args:
      keys: Of the metric: names of the inputs, and where they come from.
      inputs: What was found there.
    """
    hints = [*_tree_hints(keys, inputs), *_label_hints(keys, inputs)]
    return "".join(f"\n{hint}" for hint in hints)


def _tree_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    for name, value in inputs.items():
        if isinstance(value, Mapping | list | tuple):
            below = list(kontext.flatten_with_path(value, prefix=str(keys[name])))
            some = ", ".join(map(repr, below[:_MAX_PATHS]))
            more = ", ..." if len(below) > _MAX_PATHS else ""
            yield (
                f"{name}={str(keys[name])!r} is a tree: name one of its arrays "
                f"({some}{more}), or apply the metric to all of them with "
                "kd.metrics.TreeMap or kd.metrics.TreeReduce."
            )


def _label_hints(keys: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Class numbers without the axis of size 1 that stands for that of the classes."""
    logits, labels = inputs.get("logits"), inputs.get("labels")
    if getattr(labels, "shape", None) == getattr(logits, "shape", (None,))[:-1]:
        yield (
            f"labels={str(keys['labels'])!r} lacks the last axis, of size 1. Add it in "
            'the data, with kd.data.Rearrange(key=..., pattern="... -> ... 1").'
        )
