"""Which fields of a class have a certain token in their annotation."""

from __future__ import annotations

import re
import typing
import weakref
from collections.abc import Hashable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from kauldron.kontext.annotations import class_annotations, evaluate

_cache: weakref.WeakKeyDictionary[type, dict[Hashable, list[str]]] = (
    weakref.WeakKeyDictionary()
)


def get_annotated(cls_or_obj: Any, token: Any) -> list[str]:
    """Names of the fields whose annotation holds a token.

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
    """What makes two tokens the same: a marker that survives a reload, or equality."""
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
            "TYPE_CHECKING or inside of a function."
        )
    return False


def _mentions(text: str, token: Any) -> bool:
    names = getattr(token, "names", ())
    return any(re.search(rf"\b{name}\b", text) for name in names)


def _tokens(annotation: Any, cls: type, unknown: list[str]) -> Iterator[Any]:
    """All tokens in the type arguments of an annotation.

    Args:
      annotation: The annotation, or its text.
      cls: The class it was written in.
      unknown: Gets the names, or the whole text, that cannot be evaluated.
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
