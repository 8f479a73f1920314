"""Judges whether plain data fits an annotation, without calling anything.

Only annotations that plain data can be judged by take part: `int`, `float`, `str`,
`bool`, `bytes`, paths, `None`, `Literal`, enums, unions and the built-in containers of
these. Everything else (classes of the user, type variables, arrays, annotations that
cannot be evaluated) accepts any value.
"""

from __future__ import annotations

import collections.abc
import enum
import os
import pathlib
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

_CONTAINERS: dict[Any, tuple[type, ...]] = {
    list: (list, tuple),  # a list arrives as a tuple, and both spell one thing
    tuple: (list, tuple),
    set: (set, frozenset),
    frozenset: (set, frozenset),
    collections.abc.Sequence: (list, tuple, str),
    collections.abc.Collection: (list, tuple, set, frozenset, str, Mapping),
    collections.abc.Iterable: (list, tuple, set, frozenset, str, Mapping),
    collections.abc.Set: (set, frozenset),
    dict: (Mapping,),
    collections.abc.Mapping: (Mapping,),
    collections.abc.MutableMapping: (Mapping,),
}
_UNKNOWN = object()


def misfit(value: Any, annotation: Any) -> str | None:
    """Return what was expected and what was found, or None if a value fits.

    >>> misfit("abc", int | None)
    "expected int | None, got str 'abc'"
    >>> misfit([1, "x"], tuple[int, ...])
    "item [1]: expected int, got str 'x'"
    >>> misfit(3, float) is None
    True
    """
    if is_opaque(value):
        return None
    if annotation is None:
        annotation = type(None)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return misfit(value, typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return _union_misfit(value, annotation)
    if origin is Literal:
        return _literal_misfit(value, annotation)
    if (origin or annotation) in _CONTAINERS:
        return _container_misfit(value, annotation, origin or annotation)
    if isinstance(annotation, type):
        return None if _is_instance(value, annotation) else _report(value, annotation)
    return None


def is_opaque(value: Any) -> bool:
    """Return whether only `resolve` will tell what this value is."""
    if isinstance(value, Mapping):
        return "__qualname__" in value or "__const__" in value
    known = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset)
    return not (value is None or value is ... or isinstance(value, known))


def _is_instance(value: Any, annotation: type) -> bool:
    """Return whether plain data may be passed where `annotation` stands."""
    if annotation is type(None):
        return value is None
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int)
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is complex:
        return isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    if annotation is str:
        return isinstance(value, str)
    if annotation is bytes:
        return isinstance(value, bytes)
    if issubclass(annotation, enum.Enum):
        # A member is stored as a constant; a mixin such as StrEnum is its plain value.
        mixin = issubclass(annotation, (str, int))
        return mixin and any(value == member for member in annotation)
    if issubclass(annotation, pathlib.PurePath) or annotation is os.PathLike:
        return isinstance(value, str)
    return True


def _union_misfit(value: Any, annotation: Any) -> str | None:
    if any(misfit(value, member) is None for member in typing.get_args(annotation)):
        return None
    return _report(value, annotation)


def _literal_misfit(value: Any, annotation: Any) -> str | None:
    allowed = typing.get_args(annotation)
    if any(value == item and type(value) is type(item) for item in allowed):
        return None
    if any(isinstance(item, enum.Enum) for item in allowed):
        return None
    choices = ", ".join(map(repr, allowed))
    return f"expected one of {choices}, got {_shown(value)}"


def _container_misfit(value: Any, annotation: Any, origin: Any) -> str | None:
    accepted = _CONTAINERS[origin]
    if not isinstance(value, accepted):
        return _report(value, annotation)
    arguments = typing.get_args(annotation)
    if not arguments or isinstance(value, str):
        return None
    if isinstance(value, Mapping):
        return _mapping_misfit(value, arguments)
    if origin is tuple and arguments[-1] is not ...:
        return _fixed_tuple_misfit(value, annotation, arguments)
    return _first_misfit((f"[{i}]", item, arguments[0]) for i, item in enumerate(value))


def _mapping_misfit(value: Mapping[Any, Any], arguments: tuple[Any, ...]) -> str | None:
    if len(arguments) != 2:
        return None
    return _first_misfit((f"[{k!r}]", v, arguments[1]) for k, v in value.items())


def _fixed_tuple_misfit(
    value: Any, annotation: Any, arguments: tuple[Any, ...]
) -> str | None:
    if any(typing.get_origin(item) is typing.Unpack for item in arguments):
        return None
    expected = () if arguments == ((),) else arguments
    if len(value) != len(expected):
        return f"{_report(value, annotation)} of length {len(value)}"
    return _first_misfit(
        (f"[{i}]", item, kind) for i, (item, kind) in enumerate(zip(value, expected))
    )


def _first_misfit(items: typing.Iterable[tuple[str, Any, Any]]) -> str | None:
    for place, item, annotation in items:
        problem = misfit(item, annotation)
        if problem is not None:
            return f"item {place}: {problem}"
    return None


def _report(value: Any, annotation: Any) -> str:
    return f"expected {_annotation_name(annotation)}, got {_shown(value)}"


def _annotation_name(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return re.sub(r"(?<![\w.])(typing|collections\.abc)\.", "", str(annotation))


def _shown(value: Any) -> str:
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return "None" if value is None else f"{type(value).__name__} {text}"
