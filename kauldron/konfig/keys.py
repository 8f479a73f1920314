"""Keys of nodes: positional arguments by index, and keys that JSON cannot hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from kauldron.konfig.aliases import display_name
from kauldron.konfig.node import (
    QUALNAME_KEY,
    Key,
    Node,
    is_call,
    positional_count,
    raw_fields,
)

RAW_PREFIX = "__raw__="


def plain_key(key: Any) -> Key:
    """The key that is meant: JSON's text for `1` is 1, `("a", "b")` is `"a.b"`.

    >>> plain_key("__raw__=1.5")
    1.5
    """
    if type(key) is str:
        return _decoded(key) if key.startswith(RAW_PREFIX) else key
    if isinstance(key, tuple) and key and all(isinstance(part, str) for part in key):
        return ".".join(key)
    return key


def _decoded(key: str) -> Key:
    text = key.removeprefix(RAW_PREFIX)
    for read in (ast.literal_eval, float):  # float reads inf and nan
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return key  # not one of ours


def raw_key(key: Key) -> str:
    """The text of a key in JSON.

    Raises:
      TypeError: The key has no such text.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, (int, float)):
        return f"{RAW_PREFIX}{key!r}"
    raise TypeError(f"the key {key!r} of type {type(key).__name__} has no JSON form")


# ------------------------------------------------------------------------------------
# Positional arguments
# ------------------------------------------------------------------------------------


def argument_key(node: Node, index: int, *, append: bool = False) -> str:
    """The key of a positional argument of a call.

    Args:
      node: The node of the call.
      index: May be negative, as for lists.
      append: Whether the index after the last argument is accepted too.

    Returns:
      The decimal text under which the argument is stored.

    Raises:
      IndexError: There is no such argument.
    """
    count = positional_count(node)
    if -count <= index < count:
        return str(index % count)
    if append and index == count:
        return str(index)
    symbol = display_name(str(raw_fields(node)[QUALNAME_KEY]))
    raise IndexError(
        f"There is no positional argument {index}: the call of {symbol} has {count}"
        + (f", {-count} to {count - 1}." if count else ".")
    )


def call_items(items: Iterable[tuple[Key, Any]]) -> Iterable[tuple[Key, Any]]:
    """The items of a call in order: its symbol, positional arguments, the others.

    Raises:
      ValueError: An argument is given both as `0` and as `"0"`, or as `-1`.
    """
    symbol, positional, named = [], {}, []
    for key, value in items:
        key = plain_key(key)
        if type(key) is int:
            if key < 0:
                raise ValueError(f"Positional arguments count from 0, got {key}.")
            key = str(key)
        if key == QUALNAME_KEY:
            symbol.append((key, value))
        elif isinstance(key, str) and key.isdecimal():
            if int(key) in positional:
                raise ValueError(f"Positional argument {key} is given twice.")
            positional[int(key)] = value
        else:
            named.append((key, value))
    return [*symbol, *((str(i), positional[i]) for i in sorted(positional)), *named]


def delete_field(node: Node, key: Key) -> None:
    """Removes a field; later positional arguments move up."""
    fields = raw_fields(node)
    if not (is_call(node) and isinstance(key, str) and key.isdecimal()):
        del fields[key]
        return
    last = positional_count(node) - 1
    if int(key) > last:  # beyond a gap
        del fields[key]
        return
    for index in range(int(key), last):
        fields[str(index)] = fields[str(index + 1)]
    del fields[str(last)]
