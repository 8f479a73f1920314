"""Which names a type has, for path builders that check what is written."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union

from kauldron.kontext.annotations import Unresolved, class_annotations, evaluate

_QUALIFIERS = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


class TypeHint(NamedTuple):
    """An annotation, or the text of one, and the class it was written in."""

    annotation: Any
    owner: type = object

    def __str__(self) -> str:
        types_ = [alternative.annotation for alternative in _alternatives(self)]
        return " or ".join(getattr(t, "__name__", str(t)) for t in types_)


ANYTHING = TypeHint(Any)
"""Nothing is known about the value: every name is accepted below it."""


def known_names(hint: TypeHint) -> list[str] | None:
    """The names that can follow a value of this type; None if any can."""
    names: dict[str, None] = {}
    for alternative in _alternatives(hint):
        if not _is_structured(alternative.annotation):
            return None
        names.update(dict.fromkeys(_fields(alternative.annotation)))
        names.update(dict.fromkeys(_computed_names(alternative.annotation)))
    return list(names)


def type_of_name(hint: TypeHint, name: Any) -> TypeHint:
    """The type of `value.name`."""
    for alternative in _alternatives(hint):
        annotation = alternative.annotation
        if _is_structured(annotation) and name in _fields(annotation):
            return _fields(annotation)[name]
        if _is_generic(annotation, Mapping):
            return alternative._replace(annotation=typing.get_args(annotation)[-1])
    return ANYTHING


def type_of_item(hint: TypeHint, key: Any) -> TypeHint:
    """The type of `value[key]`."""
    for alternative in _alternatives(hint):
        if not isinstance(key, str) and _is_generic(alternative.annotation, Sequence):
            item = _sequence_item(alternative.annotation, key)
            return alternative._replace(annotation=item)
    return type_of_name(hint, key)


def _sequence_item(annotation: Any, key: Any) -> Any:
    arguments = typing.get_args(annotation)
    if not _is_generic(annotation, tuple) or arguments[-1] is ...:
        return annotation if isinstance(key, slice) else arguments[0]
    in_range = isinstance(key, int) and -len(arguments) <= key < len(arguments)
    return arguments[key] if in_range else Any


def _alternatives(hint: TypeHint) -> Iterator[TypeHint]:
    """The types of a union, without None; else the type alone."""
    annotation, unknown = evaluate(hint.annotation, hint.owner)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if unknown:
        yield ANYTHING
    elif origin is Annotated or origin in _QUALIFIERS:
        yield from _alternatives(hint._replace(annotation=arguments[0]))
    elif origin is Union or origin is types.UnionType:
        for member in arguments:
            if member is not type(None):
                yield from _alternatives(hint._replace(annotation=member))
    else:
        yield hint._replace(annotation=annotation)


def _is_generic(annotation: Any, kind: type) -> bool:
    origin = typing.get_origin(annotation)
    is_kind = isinstance(origin, type) and issubclass(origin, kind)
    return is_kind and bool(typing.get_args(annotation))


# ------------------------------------------------------------------------------------
# Classes with fields
# ------------------------------------------------------------------------------------


def _is_structured(annotation: Any) -> bool:
    """Whether the fields of this type are declared."""
    cls = typing.get_origin(annotation) or annotation
    if not isinstance(cls, type) or isinstance(cls, Unresolved):
        return False
    if dataclasses.is_dataclass(cls) or typing.is_typeddict(cls):
        return True
    if issubclass(cls, (Mapping, tuple)):
        return hasattr(cls, "_fields")
    is_array = hasattr(cls, "shape") and hasattr(cls, "dtype")
    return not is_array and bool(_fields(cls))


def _fields(annotation: Any) -> dict[str, TypeHint]:
    cls = typing.get_origin(annotation) or annotation
    return {name: TypeHint(text, base) for base, name, text in class_annotations(cls)}


def _computed_names(annotation: Any) -> list[str]:
    """Properties and class attributes, which can be read like fields."""
    cls = typing.get_origin(annotation) or annotation
    return [
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_")
        and not callable(value)
        and not isinstance(value, (classmethod, staticmethod))
    ]
