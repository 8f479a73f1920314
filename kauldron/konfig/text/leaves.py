"""How values are written that JSON has no form for: as calls and constants.

The one table behind `to_json`, `export` and `py::` texts; `resolve(allow=...)` accepts
what it names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from kauldron.konfig.tree.node import CONST_KEY, QUALNAME_KEY
from kauldron.konfig.tree.storing import Unconfigurable, enum_const


def _in_order(values: Any) -> list[Any]:
    """Return the items in the same order in every process."""
    return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


# From type to the symbol that makes such a value, and its arguments.
_CALLS: dict[type, tuple[str, Callable[[Any], list[Any]]]] = {
    set: ("builtins:set", lambda value: [_in_order(value)]),
    frozenset: ("builtins:frozenset", lambda value: [_in_order(value)]),
    bytes: ("builtins:bytes.fromhex", lambda value: [value.hex()]),
    slice: ("builtins:slice", lambda value: [value.start, value.stop, value.step]),
    complex: ("builtins:complex", lambda value: [value.real, value.imag]),
}

# What is written by konfig itself and makes nothing but plain data, without the colon.
PLAIN_SYMBOLS = frozenset(symbol.replace(":", ".") for symbol, _ in _CALLS.values()) | {
    "builtins.Ellipsis",
    "builtins.bool",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.str",
    "builtins.tuple",
    "functools.partial",
    "operator.or_",
    "pathlib.Path",
}


def call_of(value: Any) -> tuple[str, list[Any]] | None:
    """Return the symbol and arguments that make a value; None if there are none.

    >>> call_of(slice(1, 2))
    ('builtins:slice', [1, 2, None])
    """
    for kind, (symbol, arguments) in _CALLS.items():
        if isinstance(value, kind):
            return symbol, arguments(value)
    if hasattr(type(value), "__konfig_union__"):
        return "operator:or_", list(value.__konfig_union__())
    return None


def const_of(value: Any) -> str | None:
    """Return the name of the symbol that a value is; None if it has no name.

    >>> const_of(...)
    'builtins:Ellipsis'
    """
    if value is ...:
        return "builtins:Ellipsis"
    if isinstance(value, enum.Enum):
        try:
            return enum_const(value)[CONST_KEY]
        except Unconfigurable:
            return None
    if isinstance(value, type) and value.__module__ == "builtins":
        return f"builtins:{value.__qualname__}"  # one side of a union
    symbol = getattr(type(value), "__konfig_symbol__", None)
    return None if symbol is None else symbol(value)


def call_node(symbol: str, *arguments: Any) -> dict[str, Any]:
    """Return the plain form of a call.

    >>> call_node("builtins:slice", 1, 2)
    {'__qualname__': 'builtins:slice', '0': 1, '1': 2}
    """
    return {QUALNAME_KEY: symbol, **{str(i): arg for i, arg in enumerate(arguments)}}
