"""A snapshot of a config that can be a key of a dict."""

from __future__ import annotations

from typing import Any

from kauldron.konfig.errors import CycleError
from kauldron.konfig.flattening import as_config
from kauldron.konfig.immutabledict import ImmutableDict
from kauldron.konfig.node import Node, expression, raw_fields
from kauldron.konfig.pathing import Parts, children


def frozen(cfg: Any) -> ImmutableDict[Any, Any]:
    """A hashable, read-only copy of a config, nothing of it resolved.

    References are replaced by their current value, lists by tuples, sets by frozen
    sets. Snapshots of equal content are equal and have the same hash.

    Args:
      cfg: A config.

    Returns:
      The snapshot; `konfig.resolve` and `konfig.ConfigDict` accept it.

    Raises:
      CycleError: The config contains itself.

    Example:
      >>> snapshot = frozen({"a": {"b": [1, 2]}})
      >>> snapshot.a.b, snapshot in {snapshot: "known"}
      ((1, 2), True)
    """
    return _frozen(as_config(cfg), (), {})


def _frozen(value: Any, at: Parts, above: dict[int, Parts]) -> Any:
    if isinstance(value, (set, frozenset)):
        return frozenset(value)
    if not isinstance(value, (Node, list, tuple)):
        return value
    if id(value) in above:
        inner, outer = expression(at), expression(above[id(value)])
        raise CycleError(f"The config contains itself: {inner} is {outer}.")
    inside = {**above, id(value): at}
    items = [_frozen(item, (*at, part), inside) for part, item in children(value)]
    if isinstance(value, Node):
        return ImmutableDict(zip(raw_fields(value), items))
    return tuple(items)
