"""What wrote the value at a path of a config."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.node import Node
from kauldron.konfig.pathing import Parts, key_of, readable_child
from kauldron.konfig.set_events import SetEvent, field_events


def origin_of(cfg: Any, parts: Parts) -> SetEvent | None:
    """The last write of the field that holds what a path leads to.

    For an item of a list that is the write of the item, or else of the whole list.
    """
    event: SetEvent | None = None
    value, holder, key = cfg, cfg, ()
    for part in parts:
        if isinstance(value, Node):
            holder, key = value, (key_of(value, part),)
        else:
            key = (*key, part)
        events = field_events(holder, key[0] if len(key) == 1 else key)
        event = events[-1] if events else event
        value = readable_child(value, part)
    return event
