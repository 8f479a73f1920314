"""Writing paths as Python expressions, with completion and checked names."""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, Union

from kauldron.errors import did_you_mean
from kauldron.kontext.annotations import Unresolved, class_annotations, evaluate
from kauldron.path_grammar import check_parts, format_part, parse

_T = TypeVar("_T")


def path_builder_from(prefix: str, cls: type[_T]) -> _T:
    """Return an object whose attributes and items are paths.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Batch:
    ...     image: list[int]
    >>> batch = path_builder_from("batch", Batch)
    >>> str(batch.image[0])
    'batch.image[0]'
    >>> batch.imag
    Traceback (most recent call last):
    AttributeError: Batch has no field 'imag'. Did you mean 'image'?

    Args:
      prefix: The path to start from.
      cls: The type found there. If its fields are declared (dataclass, named tuple,
        `TypedDict`, annotated class), other names are an error; the same holds for the
        types of the fields. Anything goes below a type that declares no fields.

    Returns:
      The builder. For type checkers and editors it is a `cls`.
    """
    return DynamicPathBuilder(prefix, cls)  # pyright: ignore[reportReturnType]


class DynamicPathBuilder:
    """A path that attribute and item access extend.

    It prints as the path, equals it as a string, and is accepted where a path is.

    Args:
      prefix: The path to start from; by default the name of the class.
      cls: The type found there, whose fields are checked.
    """

    __slots__ = ("__text", "__type")  # private names: all others are for paths

    def __init__(self, prefix: str | None = None, cls: Any = Any) -> None:
        text = type(self).__name__ if prefix is None else str(prefix)
        parse(text)
        hint = cls if isinstance(cls, TypeHint) else TypeHint(cls)
        object.__setattr__(self, "_DynamicPathBuilder__text", text)
        object.__setattr__(self, "_DynamicPathBuilder__type", hint)

    def __getattr__(self, name: str) -> Any:
        if name != "__call__":  # as flax calls the output of a module
            if name.startswith("__") and name.endswith("__"):
                # Otherwise numpy, copy and pickle find their protocols everywhere.
                raise AttributeError(f"{type(self).__name__} has no {name!r}.")
            _check_name(self.__type, name)
        following = type_of_name(self.__type, name)
        text = self.__text + format_part(name)
        return _builder(text if self.__text else text.removeprefix("."), following)

    def __getitem__(self, key: Any) -> Any:
        if hasattr(key, "__index__") and not isinstance(key, bool):
            key = operator.index(key)
        check_parts((key,))
        following = type_of_item(self.__type, key)
        if isinstance(key, str):
            _check_name(self.__type, key)
            return _builder(f"{self.__text}[{str.__repr__(key)}]", following)
        return _builder(self.__text + format_part(key), following)

    # Item access alone would make iteration endless.
    __iter__ = None

    def __as_konfig__(self) -> str:
        return self.__text

    def __str__(self) -> str:
        return self.__text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__text})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (str, DynamicPathBuilder)):
            return self.__text == str(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.__text)

    def __dir__(self) -> list[str]:
        return known_names(self.__type) or []

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"A path builder only builds paths: cannot set {name!r}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.__text, self.__type)


class AnnotatedPathBuilder(DynamicPathBuilder):
    """Base of classes that declare the names of paths by annotations.

    An annotation that is itself such a class continues with its names; any other one
    ends what is checked.

    >>> class Camera(AnnotatedPathBuilder):
    ...     pose: int
    >>> class Batch(AnnotatedPathBuilder):
    ...     camera: Camera
    >>> str(Batch().camera.pose)
    'Batch.camera.pose'
    """

    __slots__ = ()

    def __init__(self, prefix: str | None = None, cls: Any = None) -> None:
        super().__init__(prefix, cls or type(self))


def _builder(text: str, hint: TypeHint) -> DynamicPathBuilder:
    if not issubclass(hint.owner, AnnotatedPathBuilder):
        return DynamicPathBuilder(text, hint)
    cls, _ = evaluate(hint.annotation, hint.owner)
    if isinstance(cls, type) and issubclass(cls, AnnotatedPathBuilder):
        return cls(text)
    return DynamicPathBuilder(text)


def _check_name(hint: TypeHint, name: str) -> None:
    names = known_names(hint)
    if names is None or name in names:
        return
    help_ = did_you_mean(name, names) or f" It has: {', '.join(names)}."
    # With obj=None Python does not add a second suggestion to the traceback.
    message = f"{hint} has no field {name!r}.{help_}"
    raise AttributeError(message, name=name, obj=None)


#
# Which names a type has
#


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
    """Return the names that can follow a value of this type; None if any can."""
    names: dict[str, None] = {}
    for alternative in _alternatives(hint):
        if not _is_structured(alternative.annotation):
            return None
        names.update(dict.fromkeys(_fields(alternative.annotation)))
        names.update(dict.fromkeys(_computed_names(alternative.annotation)))
    return list(names)


def type_of_name(hint: TypeHint, name: Any) -> TypeHint:
    """Return the type of `value.name`."""
    for alternative in _alternatives(hint):
        annotation = alternative.annotation
        if _is_structured(annotation) and name in _fields(annotation):
            return _fields(annotation)[name]
        if _is_generic(annotation, Mapping):
            return alternative._replace(annotation=typing.get_args(annotation)[-1])
    return ANYTHING


def type_of_item(hint: TypeHint, key: Any) -> TypeHint:
    """Return the type of `value[key]`."""
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
    """Yield the types of a union, without None; else the type alone."""
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


#
# Classes with fields
#


def _is_structured(annotation: Any) -> bool:
    """Return whether the fields of this type are declared."""
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
    """Return properties and class attributes, which can be read like fields."""
    cls = typing.get_origin(annotation) or annotation
    return [
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_")
        and not callable(value)
        and not isinstance(value, (classmethod, staticmethod))
    ]
