"""Wrong arguments of a constructor, explained: the nearest name, a missing decorator."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Self


class _SignatureOfInit:
    """Keeps `inspect.signature` true, which would take that of `__new__`."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:  # an instance that is called has another one
            raise AttributeError("__signature__")
        return _signature(owner)


class ExplainedArguments:
    """Base of classes whose subclasses users write as dataclasses.

    Example:
      >>> import dataclasses
      >>> @dataclasses.dataclass(frozen=True, kw_only=True)
      ... class Sum(ExplainedArguments):
      ...     values: str
      >>> Sum(valeus="batch.x")
      Traceback (most recent call last):
      TypeError: Sum has no field 'valeus'. Did you mean 'values'?
      >>> class Mean(ExplainedArguments):
      ...     values: str
      >>> Mean(values="batch.x")
      Traceback (most recent call last):
      TypeError: Mean declares 'values', but does not take it: write `@dataclasses.dataclass(frozen=True, kw_only=True)` above `class Mean`.
    """

    if not TYPE_CHECKING:
        __signature__ = _SignatureOfInit()

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            if args or kwargs:
                _check(cls, args, kwargs)
            return super().__new__(cls)


def unknown_argument(cls: type, name: str) -> str:
    """What to say about a keyword that a class does not take."""
    is_field = name in getattr(cls, "__dataclass_fields__", ())
    owner = None if is_field else _declaring(cls, name)
    if owner is not None:
        return (
            f"{cls.__qualname__} declares {name!r}, but does not take it: write "
            "`@dataclasses.dataclass(frozen=True, kw_only=True)` above "
            f"`class {owner.__name__}`."
        )
    accepted = [*_signature(cls).parameters]
    close = difflib.get_close_matches(name, accepted, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else ""
    listed = f"Its fields: {', '.join(accepted) or 'none'}."
    return f"{cls.__qualname__} has no field {name!r}. {hint or listed}"


def _check(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    parameters = _signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in kwargs:
        if name not in parameters:
            raise TypeError(unknown_argument(cls, name))
    if args and not parameters:
        names = list(inspect.get_annotations(cls))
        hint = f" {unknown_argument(cls, names[0])}" if names else ""
        raise TypeError(f"{cls.__qualname__} takes no arguments.{hint}")


def _declaring(cls: type, name: str) -> type | None:
    """The class that annotates a name."""
    parents = (p for p in cls.__mro__ if name in inspect.get_annotations(p))
    return next(parents, None)


@functools.cache
def _signature(cls: Any) -> inspect.Signature:
    if cls.__init__ is object.__init__:
        return inspect.Signature()
    signature = inspect.signature(cls.__init__)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
