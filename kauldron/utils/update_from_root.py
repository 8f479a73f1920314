"""Objects that take the values of some fields from the root trainer."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from kauldron.utils.error_context import error_prefix
from kauldron.utils.explained_arguments import ExplainedArguments
from kauldron.utils.root_cfg_ref import RootCfgRef, find_in_root

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

    def update_from_root_cfg(self, root: Any) -> Self:
        """A copy whose references are replaced by the values found in the root.

        Sub-classes may override this for what references cannot express, calling
        `super().update_from_root_cfg(root)`.

        Args:
          root: The trainer.

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
                    new_value = find_in_root(reference, root)
            new_value = _update(new_value, root, into_containers=name in recursed)
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
        """Whether a field has (or waits for) a value of the root trainer."""
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


def _init_fields(obj: UpdateFromRootCfg) -> list[tuple[str, Any]]:
    """Names and values of the fields that the user can set."""
    return [
        (field.name, getattr(obj, field.name))
        for field in dataclasses.fields(obj)
        if field.init and field.name != _MEMORY
    ]


def _reference_of(obj: UpdateFromRootCfg, name: str, value: Any) -> RootCfgRef | None:
    """The reference that gives this field its value, unless the user set another."""
    if isinstance(value, RootCfgRef):
        return value
    inherited = obj._inherited.get(name)
    if inherited is not None and _is_same(value, inherited.value):
        return inherited.reference
    return None


def _is_same(a: Any, b: Any) -> bool:
    """Identity, except for plain values and for containers made anew of the same."""
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
    if into_containers:
        return _map_container(
            value, lambda member: _update(member, root, into_containers=True)
        )
    return value


def _map_container(container: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the members; the same object if none of them changes."""
    if isinstance(container, Mapping):
        mapped: Any = {key: function(member) for key, member in container.items()}
        is_changed = any(mapped[key] is not container[key] for key in container)
        return type(container)(mapped) if is_changed else container  # type: ignore[call-arg]
    if isinstance(container, list | tuple):
        mapped = [function(member) for member in container]
        if all(new is old for new, old in zip(mapped, container)):
            return container
        is_named = hasattr(container, "_fields")
        return type(container)(*mapped) if is_named else type(container)(mapped)
    return container
