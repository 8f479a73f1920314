"""`konfig.history`: the recorded writes of one field."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.errors import key_error
from kauldron.konfig.node import Key, Node, expression, raw_fields
from kauldron.konfig.set_events import SetEvent, field_events
from kauldron.path_grammar import parse


def history(cfg: Node, path: str) -> tuple[SetEvent, ...]:
    """The writes of a field, oldest first; at most the last 16.

    Args:
      cfg: The config.
      path: The field, such as `"optimizer.learning_rate"` or `"layers[0].features"`.

    Returns:
      The events. Empty if recording is off. An item of a list that was not written by
      itself has the events of the list.

    Raises:
      KeyError: There is no such field, and never was.

    Example:
      >>> from kauldron import konfig
      >>> cfg = konfig.ConfigDict({"lr": 0.1})
      >>> cfg.lr = 0.2
      >>> [event.value_repr for event in konfig.history(cfg, "lr")]
      ['0.1', '0.2']
    """
    parts = parse(path)
    if not parts:
        raise ValueError("A history is that of a field: the path is empty.")
    return _events(cfg, list(parts), path)


def _events(value: Any, parts: list[Any], path: str) -> tuple[SetEvent, ...]:
    node, key, inside = _last_field(value, parts, path)
    if inside:
        events = field_events(node, (key, *inside))
        if events:
            return events
    return field_events(node, key)


def _last_field(
    value: Any, parts: list[Any], path: str
) -> tuple[Node, Key, tuple[Any, ...]]:
    """The node and key of the last field of a path, and the indexes inside of it."""
    found: tuple[Node, Key, tuple[Any, ...]] | None = None
    for done, part in enumerate(parts):
        if isinstance(value, Node):
            key = value._konfig_key(part)  # pyright: ignore[reportAttributeAccessIssue]
            recorded = value.__dict__["_konfig_history"] or ()
            if key not in raw_fields(value) and key not in recorded:
                raise key_error(f"There is no field {expression(parts[: done + 1])}.")
            found = (value, key, ())
            is_last = done == len(parts) - 1
            value = None if is_last else value[key]
        elif isinstance(value, (list, tuple)) and found is not None:
            found = (found[0], found[1], (*found[2], part))
            value = value[part]
        else:
            raise key_error(f"There is no field {expression(parts[: done + 1])}.")
    assert found is not None
    return found
