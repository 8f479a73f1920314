"""Writing paths as Python expressions, with completion and checked names."""

from __future__ import annotations

import operator
from typing import Any, NoReturn, TypeVar

from kauldron.kontext.annotations import evaluate
from kauldron.kontext.builder_schema import (
    TypeHint,
    known_names,
    type_of_item,
    type_of_name,
)
from kauldron.kontext.describe import closest
from kauldron.kontext.parts_sequence import check_parts
from kauldron.path_grammar import format_part, parse

_T = TypeVar("_T")


def path_builder_from(prefix: str, cls: type[_T]) -> _T:
    """An object whose attributes and items are paths.

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
        `TypedDict`, annotated class), other names are an error; so on for the types of
        the fields. Anything goes below a type that says nothing about its fields.

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
        raise AttributeError(f"A path builder only builds paths: {name!r} is not set.")

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
    nearest = closest(name, names)
    help_ = f"Did you mean {nearest!r}?" if nearest else f"It has: {', '.join(names)}."
    # With obj=None Python does not add a second suggestion to the traceback.
    message = f"{hint} has no field {name!r}. {help_}"
    raise AttributeError(message, name=name, obj=None)
