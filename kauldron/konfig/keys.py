"""Keys of nodes: positional arguments by index, and keys that JSON cannot hold."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from kauldron.konfig.aliases import display_name
from kauldron.konfig.argument_hints import signature_of
from kauldron.konfig.node import (
    QUALNAME_KEY,
    Key,
    Node,
    is_call,
    positional_count,
    raw_fields,
)
from kauldron.konfig.qualnames import import_qualname, split_qualname

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


def key_of_parameter(node: Node, name: str) -> str | None:
    """The key of the positional argument that a call gives to a parameter.

    None if there is no such argument or parameter, or if what is called is not loaded;
    inside `importing_symbols` it is imported.
    """
    fields = raw_fields(node)
    if name[:1] == "_" or "0" not in fields or QUALNAME_KEY not in fields:
        return None
    signature = signature_of_call(node)
    parameters = signature.parameters.values() if signature is not None else ()
    for index, parameter in enumerate(parameters):
        if parameter.name == name and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return str(index) if str(index) in fields else None
    return None


def signature_of_call(node: Node) -> inspect.Signature | None:
    """The signature of what a node calls; None if it is not loaded or has none."""
    try:
        return signature_of(_symbol(raw_fields(node)[QUALNAME_KEY]))
    except Exception:  # whoever checks or resolves it will say so
        return None


def _symbol(qualname: str) -> Any:
    if _imports_symbols.get():
        return import_qualname(qualname)
    module, attributes = split_qualname(qualname)
    return functools.reduce(getattr, (attributes or "").split("."), sys.modules[module])


_imports_symbols = contextvars.ContextVar("imports_symbols", default=False)


@contextlib.contextmanager
def importing_symbols(enabled: bool = True) -> Iterator[None]:
    """Inside the block, what is called may be imported to know its parameters."""
    token = _imports_symbols.set(enabled)
    try:
        yield
    finally:
        _imports_symbols.reset(token)


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
    _move_history(node, int(key), last)


def _move_history(node: Node, removed: int, last: int) -> None:
    """Lets the events of positional arguments move up with them.

    Those of the removed one are kept under the index that there is no longer.
    """
    table = node.__dict__["_konfig_history"] or {}
    places = {str(index): str(index - 1) for index in range(removed + 1, last + 1)}
    places[str(removed)] = str(last)

    def moved(key: Any) -> Any:
        if isinstance(key, tuple):  # of an item of a list
            return (places.get(key[0], key[0]), *key[1:])
        return places.get(key, key)

    node.__dict__["_konfig_history"] = {moved(k): v for k, v in table.items()} or None
