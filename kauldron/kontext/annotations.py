"""Annotations of classes: which fields hold a token, also where names are unknown."""

from __future__ import annotations

import builtins
import collections
import inspect
import re
import sys
import typing
import weakref
from collections.abc import Hashable, Iterator
from typing import Annotated, Any, ClassVar, Literal

_cache: weakref.WeakKeyDictionary[type, dict[Hashable, list[str]]] = (
    weakref.WeakKeyDictionary()
)


def get_annotated(cls_or_obj: Any, token: Any) -> list[str]:
    """Return names of the fields whose annotation holds a token.

    >>> class Camera:
    ...     pose: Annotated[int, "learned"]
    ...     rays: list[Annotated[int, "learned"]]
    ...     name: str
    >>> get_annotated(Camera, "learned")
    ['pose', 'rays']

    Args:
      cls_or_obj: Any class, or an object of it.
      token: What stands in `Annotated[..., token]`, or such an `Annotated` itself.

    Returns:
      Names in the order of declaration, those of base classes first. The token may
      be anywhere in the type arguments, except among the parameters of a `Callable`.

    Raises:
      NameError: An annotation cannot be evaluated and seems to hold the token.
    """
    cls = cls_or_obj if isinstance(cls_or_obj, type) else type(cls_or_obj)
    token = _unwrap(token)
    cached = _cache.setdefault(cls, {})
    key = _identity(token)
    if key not in cached:
        found = {
            name: _has_token(base, name, annotation, token)
            for base, name, annotation in class_annotations(cls)
        }
        cached[key] = [name for name, has_token in found.items() if has_token]
    return list(cached[key])


def _unwrap(token: Any) -> Any:
    if typing.get_origin(token) is Annotated:
        return token.__metadata__[0]
    return token


def _identity(token: Any) -> Hashable:
    """Return what makes tokens the same: a marker that survives a reload, or `==`."""
    marker = getattr(token, "__kontext_marker__", None)
    if marker is not None:
        return ("marker", marker)
    return token if isinstance(token, Hashable) else id(token)


def _has_token(cls: type, name: str, annotation: Any, token: Any) -> bool:
    identity = _identity(token)
    unknown: list[str] = []
    if any(_identity(t) == identity for t in _tokens(annotation, cls, unknown)):
        return True
    text = annotation if isinstance(annotation, str) else repr(annotation)
    if unknown and _mentions(text, token):
        raise NameError(
            f"The annotation of {cls.__qualname__}.{name}, {text!r}, seems to be a key "
            f"but cannot be evaluated: not found in module {cls.__module__!r}: "
            f"{', '.join(unknown)}. Import it at the top of the module, not only under "
            "TYPE_CHECKING or inside a function."
        )
    return False


def _mentions(text: str, token: Any) -> bool:
    names = getattr(token, "names", ())
    return any(re.search(rf"\b{name}\b", text) for name in names)


def _tokens(annotation: Any, cls: type, unknown: list[str]) -> Iterator[Any]:
    """Yield all tokens in the type arguments of an annotation written in a class.

    `unknown` gets the names, or the whole text, that cannot be evaluated.
    """
    if isinstance(annotation, (str, typing.ForwardRef)):
        annotation, missing = evaluate(annotation, cls)
        unknown.extend(missing)
        if isinstance(annotation, str):  # a text in a text, or what has no meaning
            return
    origin = typing.get_origin(annotation)
    if origin is Literal or origin is ClassVar:
        return
    if origin is Annotated:
        yield from annotation.__metadata__
        yield from _tokens(annotation.__origin__, cls, unknown)
        return
    if type(annotation).__name__ == "TypeAliasType":  # type X = ..., from 3.12 on
        yield from _tokens(annotation.__value__, cls, unknown)
    for argument in typing.get_args(annotation):  # a parameter list has none itself
        yield from _tokens(argument, cls, unknown)


#
# Reading annotations, also those that cannot be evaluated
#


class Unresolved(type):
    """Type of the classes that stand for unknown names in an annotation."""

    def __getattr__(cls, name: str) -> Unresolved:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unresolved(f"{cls.__name__}.{name}")

    def __getitem__(cls, item: Any) -> Unresolved:
        return cls


def _unresolved(name: str) -> Unresolved:
    return Unresolved(name, (), {})


def class_annotations(cls: type) -> Iterator[tuple[type, str, Any]]:
    """Yield all annotations of a class and its bases: class, field name, annotation.

    Base classes come first, then the order of declaration. An annotation that is
    repeated in a subclass is given twice.
    """
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            yield base, name, annotation


def evaluate(annotation: Any, cls: type) -> tuple[Any, list[str]]:
    """Return the annotation of a field of a class, evaluated if it is text.

    Also return the names in it that are unknown; classes of type `Unresolved` stand in
    for them. A text that cannot be evaluated is returned as it is, and is itself listed
    as unknown if no name in it is.
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


class _Names(collections.ChainMap[str, Any]):
    """The names that an annotation in the body of a class can use."""

    def __init__(self, cls: type) -> None:
        module = sys.modules.get(cls.__module__)
        super().__init__(
            dict(vars(cls)),
            {p.__name__: p for p in getattr(cls, "__type_params__", ())},
            {cls.__name__: cls},
            vars(module) if module else {},
            builtins.__dict__,
            _own_modules(),
        )
        self.missing: list[str] = []

    def __missing__(self, name: str) -> Unresolved:
        self.missing.append(name)
        return _unresolved(name)


def _own_modules() -> dict[str, Any]:
    """`kontext` and `kd`, which may be imported inside a function."""
    return {
        name: sys.modules[f"kauldron.{name}"]
        for name in ("kontext", "kd")
        if f"kauldron.{name}" in sys.modules
    }
