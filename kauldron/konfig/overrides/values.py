"""Text of an override to value, and back.

`--cfg.lr=1e-3` gives text. What it means depends on the field it goes to: `123` is a
number for a number field and text for a text field.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import os
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any

from kauldron.errors import a_type
from kauldron.konfig.overrides.py_expressions import PREFIX, parse_py
from kauldron.konfig.symbols import expand_alias
from kauldron.konfig.text.leaves import call_of

_BOOLS = {"true": True, "True": True, "false": False, "False": False}


def parse_literal(text: str) -> Any:
    """Return what a text means when nothing is known about its target.

    A bool for `true` and `false`, the value of a Python literal or of a JSON list or
    object, otherwise the text itself.

    >>> [parse_literal(t) for t in ("1e-3", "None", "1,2", "true", "[a,b]", "")]
    [0.001, None, (1, 2), True, '[a,b]', '']
    """
    if text in _BOOLS:
        return _BOOLS[text]
    try:
        with warnings.catch_warnings():  # about escapes such as "\\d"
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def parse_value(text: str, target: Any) -> Any:
    """Return what a text means for a field of a type, or of a union of types.

    The value need not be of this type: that is for the config to decide.

    >>> parse_value("123", str), parse_value("'123'", str), parse_value("1", bool)
    ('123', '123', True)

    Raises:
      ValueError: The text starts with `py::` and what follows cannot be read.
    """
    if text.startswith(PREFIX):
        return parse_py(text)
    literal = parse_literal(text)
    targets = types_of(target)
    if float in targets and text.strip("+-") in ("inf", "nan"):
        return float(text)
    if literal is None or isinstance(literal, str):
        return literal
    if bool in targets and type(literal) is int and literal in (0, 1):
        return literal if int in targets else bool(literal)
    takes_text = any(issubclass(t, str) or hasattr(t, "__fspath__") for t in targets)
    if takes_text and not isinstance(literal, tuple(targets)):
        return text
    return literal


def types_of(target: Any) -> list[type]:
    """Return the types in an annotation: those of a union, `list` for `list[int]`."""
    if typing.get_origin(target) in (typing.Union, types.UnionType):
        return [t for member in typing.get_args(target) for t in types_of(member)]
    if isinstance(target, tuple):
        return [t for member in target for t in types_of(member)]
    target = typing.get_origin(target) or target
    return [target] if isinstance(target, type) else []


def format_value(value: Any) -> str:
    """Return the text that `parse_value` reads as `value`, whatever the field.

    Strings that could be mistaken for something else come in quotes, nodes as a `py::`
    expression.

    >>> format_value("cosine"), format_value("123"), format_value([1, None])
    ('cosine', "'123'", '[1, None]')
    >>> format_value({"__qualname__": "optax:adam", "0": 0.1})
    'py::optax:adam(0.1)'

    Raises:
      TypeError: No text describes the value.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # for fields that hold a float
    if isinstance(value, str):
        plain = value.isprintable() and value == value.strip()
        is_text = parse_literal(value) == value and not value.startswith(PREFIX)
        return value if plain and is_text else repr(value)
    text = _expression(value)
    return PREFIX + text if _needs_py(value) else text


def _needs_py(value: Any) -> bool:
    """Return whether a value holds something that a Python literal cannot say."""
    if isinstance(value, Mapping):
        if "__qualname__" in value or "__const__" in value:
            return True
        return any(map(_needs_py, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return isinstance(value, frozenset) or any(map(_needs_py, value))
    return isinstance(value, slice)


def _expression(value: Any) -> str:
    match value:
        case Mapping():
            return _mapping_expression(value)
        case list():
            return "[" + ", ".join(map(_expression, value)) + "]"
        case tuple():
            items = ", ".join(map(_expression, value))
            return f"({items},)" if len(value) == 1 else f"({items})"
        case set():
            items = ", ".join(sorted(map(_expression, value)))
            return f"{{{items}}}" if value else "set()"
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case float() if math.isnan(value):
            raise TypeError("No flag can carry a nan inside another value.")
        case bool() | int() | float() | complex() | str() | bytes() | None:
            return repr(value)
        case os.PathLike():
            return repr(os.fspath(value))
        case slice() | frozenset():
            symbol, arguments = call_of(value) or ("", [])
            return f"{symbol}({', '.join(map(_expression, arguments))})"
    if value is ...:
        return "..."
    raise TypeError(f"No flag can carry {a_type(value)}: {value!r:.60}")


def _mapping_expression(value: Mapping[Any, Any]) -> str:
    names = [k for k in value if not (isinstance(k, str) and k.isdecimal())]
    symbol = value.get("__const__", value.get("__qualname__"))
    if symbol is None or not _is_sayable(symbol) or not all(map(_is_name, names)):
        items = [f"{_expression(k)}: {_expression(v)}" for k, v in value.items()]
        return "{" + ", ".join(items) + "}"
    if "__const__" in value:
        return symbol
    arguments = {k: v for k, v in value.items() if k != "__qualname__"}
    items: list[str] = []
    while str(len(items)) in arguments:
        items.append(_expression(arguments.pop(str(len(items)))))
    items += [f"{name}={_expression(v)}" for name, v in arguments.items()]
    return f"{symbol}({', '.join(items)})"


def _is_name(text: Any) -> bool:
    is_text = isinstance(text, str)
    return is_text and text.isidentifier() and not keyword.iskeyword(text)


def _is_sayable(symbol: Any) -> bool:
    """Return whether an expression can name this symbol and no other."""
    if not isinstance(symbol, str) or symbol.count(":") != 1:
        return False
    parts = symbol.replace(":", ".").split(".")
    return all(map(_is_name, parts)) and expand_alias(symbol) == symbol
