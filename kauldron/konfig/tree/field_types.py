"""The rule that keeps the type of a field when it is overwritten."""

from __future__ import annotations

import os
from typing import Any

import ml_collections
from ml_collections import FieldReference

from kauldron.konfig.tree.node import Node, is_call, is_const


def convert(new: Any, declared: Any) -> Any:
    """Return the value to store when `new` overwrites something of type `declared`.

    It is converted where that loses nothing (`1` to `1.0`, list to tuple). What is not
    a type, a union or a tuple of types says nothing: every value fits. The `TypeError` if
    it does not fit says which types, not where.
    """
    if new is None or declared in (object, None, type(None)):
        return new
    if isinstance(new, FieldReference) or _resolves_to_unknown(new):
        return new
    try:
        if isinstance(new, declared):
            return new
    except TypeError:  # not a type: nothing is known about it
        return new
    for alternative in _alternatives(declared):
        converted = _converted(new, alternative)
        if converted is not None:
            return converted
    raise TypeError(f"{type_name(declared)} expected, got {type_name(type(new))}")


def check_overwrite(old: Any, new: Any) -> Any:
    """Return the value to store when `new` replaces the stored value `old`."""
    if old is None or _resolves_to_unknown(old):
        return new
    if isinstance(old, Node):
        return convert(new, Node)
    return convert(new, type(old))


def _resolves_to_unknown(value: Any) -> bool:
    """Return whether what a value resolves to is known only when it is resolved."""
    if isinstance(value, Node):
        return is_call(value) or is_const(value)
    return hasattr(type(value), "__konfig_union__")


def _alternatives(declared: Any) -> tuple[Any, ...]:
    if isinstance(declared, tuple):
        return tuple(a for item in declared for a in _alternatives(item))
    return getattr(declared, "__args__", None) or (declared,)


def _converted(new: Any, declared: Any) -> Any:
    """Return `new` as `declared`; `None` if that could lose something."""
    if declared is float and isinstance(new, int):
        return float(new)
    if declared is int and isinstance(new, float) and new.is_integer():
        return int(new)
    if declared in (list, tuple) and isinstance(new, (list, tuple)):
        return declared(new)
    if declared in (set, frozenset) and isinstance(new, (set, frozenset)):
        return declared(new)
    if declared is str and isinstance(new, os.PathLike):
        return os.fspath(new)
    if isinstance(declared, type):
        is_path = hasattr(declared, "__fspath__")
        if is_path and isinstance(new, (str, os.PathLike)):
            return new
        if isinstance(new, Node) and issubclass(declared, (dict, Node)):
            return new
    return None


def type_name(type_: Any) -> str:
    """Return a short name for messages: nodes are dicts to the author of a config."""
    if isinstance(type_, tuple):
        return " or ".join(map(type_name, type_))
    if isinstance(type_, type) and issubclass(type_, ml_collections.ConfigDict):
        return "dict"
    return getattr(type_, "__name__", None) or str(type_)
