"""`konfig.history`: the recorded writes of one field."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.node import Key, Node
from kauldron.konfig.pathing import (
    Parts,
    child,
    has_child,
    key_of,
    path_parts,
    raise_not_found,
)
from kauldron.konfig.set_events import SetEvent, field_events


def history(cfg: Node, path: str) -> tuple[SetEvent, ...]:
    """The writes of a field, oldest first; at most the last 16.

    Args:
      cfg: The config.
      path: The field, such as `"optimizer.learning_rate"` or `"layers[0].features"`.

    Returns:
      The events. Empty if recording is off. An item of a list that was not written by
      itself has the events of the list.

    Raises:
      KeyError: There is no such field, and never was. An index that is out of range is
        an `IndexError` as well.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"lr": 0.1})
      >>> cfg.lr = 0.2
      >>> [event.value_repr for event in konfig.history(cfg, "lr")]
      ['0.1', '0.2']
    """
    parts = path_parts(path)
    if not parts:
        raise ValueError("A history is that of a field: the path is empty.")
    node, key, inside = _last_field(cfg, parts)
    events = field_events(node, (key, *inside)) if inside else ()
    return events or field_events(node, key)


def _last_field(cfg: Node, parts: Parts) -> tuple[Node, Key, tuple[Any, ...]]:
    """The node and key of the last field of a path, and the indexes inside of it."""
    value: Any = cfg
    node, key, inside = cfg, None, ()
    part: Any
    for depth, part in enumerate(parts):
        is_last = depth == len(parts) - 1
        if isinstance(value, Node):
            node, key, inside = value, key_of(value, part), ()
            if is_last and key in (node.__dict__["_konfig_history"] or ()):
                break  # it may be deleted
        if not has_child(value, part):
            raise_not_found(parts, depth, value)
        if not isinstance(value, Node):
            inside = (*inside, range(len(value))[part])  # counted from the start
        if not is_last:
            value = child(value, part)
    return node, key, inside
