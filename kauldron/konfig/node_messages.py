"""What is said about the fields of a node."""

from __future__ import annotations

import warnings
from typing import Any

from kauldron.konfig.aliases import display_name
from kauldron.konfig.node import (
    CONST_KEY,
    QUALNAME_KEY,
    Key,
    Node,
    field_expression,
    raw_fields,
)
from kauldron.konfig.qualnames import did_you_mean
from kauldron.konfig.set_events import short_repr

_warned_names: set[str] = set()


def node_name(node: Node) -> str:
    """`cfg.optimizer (optax.adam)`: the place of a node and what it stands for."""
    fields = raw_fields(node)
    symbol = fields.get(QUALNAME_KEY) or fields.get(CONST_KEY)
    suffix = f" ({display_name(symbol)})" if isinstance(symbol, str) else ""
    return field_expression(node) + suffix


def missing_field(node: Node, key: Key) -> str:
    """There is no such field; the nearest, or else all that there are."""
    fields = raw_fields(node)
    names = [str(name) for name in fields]
    hint = did_you_mean(key, names)
    if not hint:
        hint = f" It has: {', '.join(names)}." if names else " It is empty."
        if QUALNAME_KEY in fields:
            hint += " This is a call that was not made yet: `konfig.resolve` makes it."
    return f"{node_name(node)} has no field {key!r}.{hint}"


def locked_field(node: Node, key: Key) -> str:
    """The field cannot be added or deleted."""
    fields = raw_fields(node)
    verb, hint = (
        ("deleted", "") if key in fields else ("added", did_you_mean(key, fields))
    )
    return (
        f"{node_name(node)} is locked: the field {key!r} cannot be {verb}.{hint} "
        "Use cfg.unlock() or cfg.unlocked()."
    )


def wrong_type(node: Node, key: Key, value: Any, reason: TypeError) -> str:
    """The value does not fit the type of the field, and the way out."""
    return (
        f"Cannot set {field_expression(node, key)} to {short_repr(value, 40)}: "
        f"{reason}. To change the type of a field, write it inside "
        "`with cfg.ignore_type():`."
    )


def warn_of_method_name(name: str) -> None:
    """Once per name: the field can be written, but not read, as an attribute."""
    if name not in _warned_names:
        _warned_names.add(name)
        warnings.warn(
            f"The field {name!r} is stored, but `cfg.{name}` is a method of configs: "
            f"read the field as cfg[{name!r}].",
            stacklevel=3,
        )
