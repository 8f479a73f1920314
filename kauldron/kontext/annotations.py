"""Reading annotations of classes, also those that cannot be evaluated."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any


class Unresolved(type):
    """Type of the classes that stand for names an annotation uses but nobody knows."""

    def __getattr__(cls, name: str) -> Unresolved:
        if name.startswith("__"):
            raise AttributeError(name)
        return unresolved(f"{cls.__name__}.{name}")

    def __getitem__(cls, item: Any) -> Unresolved:
        return cls


def unresolved(name: str) -> Unresolved:
    return Unresolved(name, (), {})


def class_annotations(cls: type) -> Iterator[tuple[type, str, Any]]:
    """All annotations of a class and its bases: class, field name, annotation.

    Base classes come first, then the order of declaration. An annotation that is
    repeated in a subclass is given twice.
    """
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            yield base, name, annotation


def evaluate(annotation: Any, cls: type) -> tuple[Any, list[str]]:
    """The annotation of a field as an object, if it is text.

    Args:
      annotation: An annotation, or the text of one.
      cls: The class it was written in.

    Returns:
      The object, or the text if there is no way to evaluate it; and what is not known:
      names, for which classes of type `Unresolved` stand, or the whole text.
    """
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation, []
    names = _Names(cls)
    try:
        return eval(annotation, {"__builtins__": {}}, names), names.missing
    except Exception:  # any code can stand in an annotation
        return annotation, names.missing or [annotation]


class _Names(Mapping[str, Any]):
    """The names that an annotation in the body of a class can use."""

    def __init__(self, cls: type) -> None:
        module = sys.modules.get(cls.__module__)
        self._scopes: list[Mapping[str, Any]] = [
            vars(cls),
            {parameter.__name__: parameter for parameter in _type_parameters(cls)},
            {cls.__name__: cls},
            vars(module) if module else {},
            vars(sys.modules["builtins"]),
            _own_modules(),
        ]
        self.missing: list[str] = []

    def __getitem__(self, name: str) -> Any:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        self.missing.append(name)
        return unresolved(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _type_parameters(cls: type) -> tuple[Any, ...]:
    return getattr(cls, "__type_params__", ())


def _own_modules() -> dict[str, types.ModuleType]:
    """`kontext` and `kd`, which may be imported inside of a function."""
    return {
        name: sys.modules[f"kauldron.{name}"]
        for name in ("kontext", "kd")
        if f"kauldron.{name}" in sys.modules
    }
