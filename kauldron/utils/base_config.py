"""`BaseConfig`: subclassing it makes a frozen dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, NoReturn, Self

from kauldron.utils import config_repr
from kauldron.utils.explained_arguments import unknown_argument


@typing.dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    eq_default=False,
    field_specifiers=(dataclasses.field,),
)
class BaseConfig:
    """Base of trainers and evaluators; every subclass is a dataclass.

    Subclasses need no decorator. They are keyword-only and frozen, and two objects are
    equal only if they are the same one. A `str` given to a field annotated as a path
    becomes a path.

    Example:
      >>> class Run(BaseConfig):
      ...     name: str
      ...     folder: pathlib.Path = pathlib.Path()
      >>> Run(name="a", folder="out").replace(name="b")
      Run(
          name='b',
          folder=PosixPath('out'),
      )
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        writes_own_init = "__init__" in vars(cls)
        dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)(cls)
        if not writes_own_init:
            cls.__init__ = _checked_init(cls, cls.__init__)
        # Somebody may still decorate the class with `@dataclasses.dataclass(...)`. That
        # refuses classes with a `__setattr__` of their own, and replaces what is not.
        del cls.__setattr__, cls.__delattr__
        for name in ("__repr__", "__eq__", "__hash__"):
            setattr(cls, name, getattr(cls, name))

    def replace(self, **changes: Any) -> Self:
        """A copy with changed fields, constructed anew (`__post_init__` runs again)."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @property
    def ref(self) -> Self:
        """For type checkers: `cfg.ref.x` in a config refers to another field."""
        raise RuntimeError(
            "`.ref` belongs to configs made inside `konfig.imports()`: this "
            f"{type(self).__qualname__} is already built. Read the field itself."
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__qualname__} is frozen: cannot set {name!r}. Use "
            f"`.replace({name}=...)` for a changed copy."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__qualname__} is frozen: cannot delete {name!r}."
        )

    def __repr__(self) -> str:
        return config_repr.as_text(self)

    def _repr_html_(self) -> str:
        return config_repr.as_html(self)


def _checked_init(cls: type, init: Callable[..., None]) -> Callable[..., None]:
    accepted = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            raise TypeError(
                f"{cls.__qualname__} takes keyword arguments only, got {args[0]!r:.80}. "
                f"Its fields: {', '.join(accepted)}."
            )
        for name in kwargs:
            if name not in accepted:
                raise TypeError(unknown_argument(cls, name))
        for name, path_type in _path_fields(type(self)).items():
            if isinstance(kwargs.get(name), str):
                kwargs[name] = path_type(kwargs[name])
        init(self, **kwargs)

    return __init__


@functools.cache
def _path_fields(cls: type) -> dict[str, type]:
    """Fields annotated as a path, with the type that makes one from a string."""
    found = {}
    for parent in reversed(cls.__mro__):
        namespace = getattr(sys.modules.get(parent.__module__), "__dict__", {})
        for name, annotation in inspect.get_annotations(parent).items():
            path_type = _path_type(annotation, namespace)
            found.pop(name, None)
            if path_type is not None:
                found[name] = path_type
    return found


def _path_type(annotation: Any, namespace: dict[str, Any]) -> type | None:
    if isinstance(annotation, str):
        if "Path" not in annotation:
            return None
        try:
            annotation = eval(annotation, namespace)
        except Exception:  # names that only type checkers see
            return None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = typing.get_args(annotation)
        if str in members:
            return None
        paths = [_path_type(member, namespace) for member in members]
        return next((path for path in paths if path is not None), None)
    is_path = isinstance(annotation, type) and issubclass(annotation, pathlib.PurePath)
    return annotation if is_path else None
