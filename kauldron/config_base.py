"""Config classes whose parts inherit values from the root: trainers, evaluators, ...

A field may hold a reference, `ROOT_CFG_REF.seed`; `UpdateFromRootCfg` replaces it by the
value found in the trainer once there is one. `BaseConfig` makes frozen dataclasses of its
subclasses that show themselves one field per line.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import html
import inspect
import os
import pathlib
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from kauldron.errors import ExplainedArguments, error_prefix, unknown_argument
from kauldron.immutabledict import block

#
# References to the root
#


# One step of the walk from the root: an attribute name, or an item's key in a 1-tuple.
_Step = str | tuple[Hashable]


class RootCfgRef:
    """A path from the root trainer to a value; attributes and items go deeper.

    Every public attribute is part of the path, so the functions on references are in
    this module and not methods.
    """

    __slots__ = ("_steps",)

    _steps: tuple[_Step, ...]

    def __init__(self, *steps: _Step):
        object.__setattr__(self, "_steps", steps)

    def __getattr__(self, name: str) -> Any:
        # `abc`, `inspect`, `copy` and others probe for private names.
        if name.startswith("_"):
            raise AttributeError(
                f"{self!r} has no attribute {name!r}: references reach public names only."
            )
        return RootCfgRef(*self._steps, name)

    def __getitem__(self, key: Hashable) -> Any:
        return RootCfgRef(*self._steps, (key,))

    __iter__ = None
    __contains__ = None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a reference and cannot be assigned to.")

    def __set_name__(self, owner: type, name: str) -> None:
        if not hasattr(owner, "update_from_root_cfg"):
            raise TypeError(
                f"`{owner.__qualname__}.{name} = {self!r}` would never be filled in: "
                f"{owner.__qualname__} has to inherit from "
                "`kd.utils.config_util.UpdateFromRootCfg`."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootCfgRef) and self._steps == other._steps

    def __hash__(self) -> int:
        return hash((RootCfgRef, self._steps))

    def __reduce__(self) -> tuple[type[RootCfgRef], tuple[_Step, ...]]:
        return RootCfgRef, self._steps

    def __repr__(self) -> str:
        parts = (f".{s}" if isinstance(s, str) else f"[{s[0]!r}]" for s in self._steps)
        return "ROOT_CFG_REF" + "".join(parts)

    def __konfig_export__(self) -> dict[str, Any]:
        steps = {str(i): step for i, step in enumerate(self._steps)}
        return {"__qualname__": "kauldron.utils.config_util:RootCfgRef", **steps}


ROOT_CFG_REF: Any = RootCfgRef()
"""Stands for the root trainer: `ROOT_CFG_REF.seed`, `ROOT_CFG_REF.aux["lr"]`."""


def find_in_root(reference: RootCfgRef, root: Any) -> Any:
    """Walk from the root to what the reference points to."""
    value = root
    for step in reference._steps:
        value = getattr(value, step) if isinstance(step, str) else value[step[0]]
    return value


#
# Inheriting
#


_MEMORY = "_inherited"
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, pathlib.PurePath, enum.Enum)


@dataclasses.dataclass(frozen=True)
class _Inherited:
    """Where a field's value came from, and that value."""

    reference: RootCfgRef
    value: Any


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class UpdateFromRootCfg(ExplainedArguments):
    """Mixin for frozen dataclasses whose fields may be references to the root trainer.

    A field that was filled from a reference stays linked to it, and is filled again
    when the object gets into another trainer, until the user sets it to another value.

    Attributes:
      __root_cfg_fields_to_recurse__: Names of fields holding containers (mappings,
        lists, tuples) whose members are to be updated too. Merged over the classes.

    Example:
      >>> from kauldron import kd
      >>> @dataclasses.dataclass(frozen=True, kw_only=True)
      ... class Saver(kd.utils.config_util.UpdateFromRootCfg):
      ...     folder: str = kd.utils.config_util.ROOT_CFG_REF.workdir
      ...     every: int = 10
      >>> import types
      >>> trainer = types.SimpleNamespace(workdir="runs/1")
      >>> Saver().update_from_root_cfg(trainer)
      Saver(folder='runs/1', every=10)
    """

    __root_cfg_fields_to_recurse__: ClassVar[tuple[str, ...]] = ()

    # What `update_from_root_cfg` put in which field. An argument of the constructor, so
    # that `dataclasses.replace` hands it on.
    _inherited: Mapping[str, _Inherited] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _names_to_recurse(cls)  # complain early

    def update_from_root_cfg(self, root_cfg: Any) -> Self:
        """Return a copy whose references are replaced by the values found in the root.

        Sub-classes may override this for what references cannot express, calling
        `super().update_from_root_cfg(root_cfg)`.

        Args:
          root_cfg: The trainer.

        Returns:
          The copy; `self` if nothing changes.
        """
        changes: dict[str, Any] = {}
        references: dict[str, RootCfgRef] = {}
        recursed = _names_to_recurse(type(self))
        for name, value in _init_fields(self):
            new_value = value
            reference = _reference_of(self, name, value)
            if reference is not None:
                references[name] = reference
                with error_prefix(
                    f"{type(self).__qualname__}.{name} = {reference!r}: "
                ):
                    new_value = find_in_root(reference, root_cfg)
            new_value = _update(new_value, root_cfg, into_containers=name in recursed)
            if not _is_same(new_value, value):
                changes[name] = new_value
        if not changes:
            return self
        updated = dataclasses.replace(self, **changes)
        # What the constructor made of the values (a frozen dict, a cast path) is what
        # a later look will find in the fields.
        inherited = {
            name: _Inherited(reference, getattr(updated, name))
            for name, reference in references.items()
        }
        object.__setattr__(updated, _MEMORY, inherited)
        return updated

    def _is_inherited(self, name: str) -> bool:
        """Return whether a field has (or waits for) a value of the root trainer."""
        return _reference_of(self, name, getattr(self, name)) is not None

    def _assert_root_cfg_resolved(self) -> None:
        """Raise `ValueError` if a field still waits for the root trainer."""
        for name, value in _init_fields(self):
            if isinstance(value, RootCfgRef):
                raise ValueError(
                    f"`{type(self).__qualname__}.{name}` is not set: its default is "
                    f"{value!r}, a value of the trainer. Give `{name}=` explicitly, or "
                    "use the object inside a `kd.train.Trainer`."
                )
            if isinstance(value, UpdateFromRootCfg):
                value._assert_root_cfg_resolved()

    def __konfig_export__(self) -> dict[str, Any]:
        cls = type(self)
        qualname = f"{cls.__module__}:{cls.__qualname__}"
        return {"__qualname__": qualname, **dict(_init_fields(self))}


def accept_newer_keywords(cls: type, method: str, *names: str) -> None:
    """Let a method take keywords that came after it was overridden, and ignore them.

    Args:
      cls: A class that is being defined.
      method: Name of the method, which the class may override.
      names: The newer keywords.

    Example:
      >>> class Older:
      ...     def save(self, step):
      ...         return step
      >>> accept_newer_keywords(Older, "save", "metadata")
      >>> Older().save(3, metadata={})
      3
    """
    override = vars(cls).get(method)
    if override is None:
        return
    parameters = inspect.signature(override).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    ignored = () if takes_all else [name for name in names if name not in parameters]
    if not ignored:
        return

    @functools.wraps(override)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = {name: v for name, v in kwargs.items() if name not in ignored}
        return override(self, *args, **known)

    setattr(cls, method, wrapper)


def _init_fields(obj: UpdateFromRootCfg) -> list[tuple[str, Any]]:
    """Return names and values of the fields that the user can set."""
    return [
        (field.name, getattr(obj, field.name))
        for field in dataclasses.fields(obj)
        if field.init and field.name != _MEMORY
    ]


def _reference_of(obj: UpdateFromRootCfg, name: str, value: Any) -> RootCfgRef | None:
    """Return the reference that gives a field its value, unless the user set another."""
    if isinstance(value, RootCfgRef):
        return value
    inherited = obj._inherited.get(name)
    if inherited is not None and _is_same(value, inherited.value):
        return inherited.reference
    return None


def _is_same(a: Any, b: Any) -> bool:
    """Compare plain values by `==`, containers by member, all else by identity."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(_is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return isinstance(a, _PLAIN_TYPES) and type(a) is type(b) and a == b


@functools.cache
def _names_to_recurse(cls: type) -> tuple[str, ...]:
    names: list[str] = []
    for parent in reversed(cls.__mro__):
        names += vars(parent).get("__root_cfg_fields_to_recurse__", ())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`{cls.__qualname__}.__root_cfg_fields_to_recurse__` names {twice} twice, "
            "counting what its parents list. List only the fields the class adds."
        )
    return tuple(names)


def _update(value: Any, root: Any, *, into_containers: bool) -> Any:
    if value is root:
        return value
    if isinstance(value, UpdateFromRootCfg):
        return value.update_from_root_cfg(root)
    return update_members(value, root) if into_containers else value


def update_members(container: Any, root: Any) -> Any:
    """Update the members of a mapping, list or tuple, however deep they are nested.

    The result is the container itself if none of them changes.
    """

    def update(member: Any) -> Any:
        return _update(member, root, into_containers=True)

    if isinstance(container, Mapping):
        mapped: Any = {key: update(member) for key, member in container.items()}
        is_changed = any(mapped[key] is not container[key] for key in container)
        return type(container)(mapped) if is_changed else container  # type: ignore[call-arg]
    if isinstance(container, list | tuple):
        mapped = [update(member) for member in container]
        if all(new is old for new, old in zip(mapped, container)):
            return container
        is_named = hasattr(container, "_fields")
        return type(container)(*mapped) if is_named else type(container)(mapped)
    return container


#
# The base class
#


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
        # Somebody may still decorate the class with `@dataclasses.dataclass(...)`: that
        # refuses a class that defines `__setattr__`, and replaces the methods below
        # unless the class itself defines them.
        del cls.__setattr__, cls.__delattr__
        for name in ("__repr__", "__eq__", "__hash__"):
            setattr(cls, name, getattr(cls, name))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed fields, for which `__post_init__` runs again."""
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

    @reprlib.recursive_repr(fillvalue="...")
    def __repr__(self) -> str:
        items = [f"{name}={value!r}" for name, value in _shown_fields(self)]
        return block(f"{type(self).__qualname__}(", items, ")", width=0)

    @reprlib.recursive_repr(fillvalue="...")
    def _repr_html_(self) -> str:
        """Return the same as HTML, with longer fields folded."""
        fields = (_html_field(name, value) for name, value in _shown_fields(self))
        rows = "".join(f"<li>{field}</li>" for field in fields)
        title = html.escape(type(self).__qualname__)
        return f"<details open><summary>{title}</summary><ul>{rows}</ul></details>"


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
                kwargs[name] = path_type(os.path.expanduser(kwargs[name]))
        init(self, **kwargs)

    return __init__


@functools.cache
def _path_fields(cls: type) -> dict[str, type]:
    """Return the fields annotated as a path, with the type that makes one from text."""
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


def _shown_fields(obj: Any) -> list[tuple[str, Any]]:
    return [(f.name, getattr(obj, f.name)) for f in dataclasses.fields(obj) if f.repr]


def _html_field(name: str, value: Any) -> str:
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return f"{name} = <code>{html.escape(text)}</code>"
    summary = html.escape(type(value).__qualname__)
    return (
        f"<details><summary>{name} = {summary}</summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )
