"""`Intermediates`: the values that were stored during a call, by attribute."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

import jax

from kauldron.klinen import errors
from kauldron.klinen.definitions import Path
from kauldron.klinen.intermediate_fields import UNSET, intermediate_fields
from kauldron.klinen.structures import iterate_structure, map_structure
from kauldron.klinen.variable_trees import Selection


@dataclasses.dataclass(frozen=True)
class ModuleRef:
    """Stands for the module that flax runs at a path."""

    path: Path


@dataclasses.dataclass(frozen=True)
class ModuleOutline:
    """A module that took part in a call.

    Attributes:
      cls: Its class.
      children: Attributes that hold modules: containers with `ModuleRef`s inside, and
        `None` for what is no module.
    """

    cls: type
    children: Mapping[str, Any]


@dataclasses.dataclass(eq=False)
class Captured:
    """What calls have stored.

    Attributes:
      values: Flax's collection of intermediates.
      outlines: The modules, by path.
      is_complete: Whether the values may be looked at.
      views: `Intermediates` in use, by path: a shared module has one.
    """

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    outlines: dict[Path, ModuleOutline] = dataclasses.field(default_factory=dict)
    is_complete: bool = True
    views: weakref.WeakValueDictionary[Path, Intermediates] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )


class Intermediates:
    """The intermediate values of a call, with the attributes of the model.

    `intermediates.encoder.hidden` is the value of the field `hidden` of
    `model.encoder`. Values stored with `self.sow('intermediates', 'name', ...)` are
    `intermediates.encoder['name']`; modules that are made inside of a call are
    `intermediates.encoder['Dense_0']`. It is a pytree.
    """

    __slots__ = ("__weakref__", "_captured", "_path")

    _captured: Captured
    _path: Path

    def __init__(self, captured: Captured, path: Path):
        object.__setattr__(self, "_captured", captured)
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        if name in Intermediates.__slots__ or name.startswith("__"):
            raise AttributeError(name)  # asked for while copying or pickling
        if not self._captured.is_complete:
            raise AttributeError(_too_early(name))
        outline = self._outline()
        if name in outline.children:
            return map_structure(self._resolve, outline.children[name])
        fields = intermediate_fields(outline.cls)
        if name not in fields:
            raise AttributeError(self._missing_message(name))
        value = self._values().get(name, UNSET)
        if value is UNSET:
            value = fields[name].default()
        if value is UNSET:
            raise fields[name].unset_error()
        return value

    def __getitem__(self, name: str) -> Any:
        if not self._captured.is_complete:
            raise errors.ReadableKeyError(_too_early(name))
        values = self._values()
        path = (*self._path, name)
        is_value = name in intermediate_fields(self._outline().cls)
        if path in self._captured.outlines:
            return _view(self._captured, path)
        if name not in values:
            raise errors.ReadableKeyError(
                f"{name!r}: the call stored {self._item_names()} here."
            )
        if isinstance(values[name], Mapping) and not is_value:
            return _view(self._captured, path)
        return values[name]

    def __contains__(self, name: str) -> bool:
        return self._captured.is_complete and name in self._item_names()

    __iter__ = None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Intermediates cannot be changed: {name!r}.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Intermediates cannot be changed: {name!r}.")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._attribute_names()})

    def __repr__(self) -> str:
        name = self._outline().cls.__name__
        if not self._captured.is_complete:
            return "Intermediates(<available after the `with` block>)"
        parts = [*self._attribute_names()]
        parts += [f"[{n!r}]" for n in self._item_names() if n not in parts]
        return f"Intermediates({name}: {', '.join(parts) or 'nothing'})"

    def __reduce__(self) -> tuple[Any, ...]:
        (values,), static = _flatten(self)
        return _unflatten, (static, (values,))

    def _outline(self) -> ModuleOutline:
        return self._captured.outlines.get(self._path, _UNKNOWN)

    def _values(self) -> Mapping[str, Any]:
        tree: Any = self._captured.values
        for name in self._path:
            tree = tree.get(name, {})
        return tree

    def _resolve(self, ref: Any, _: Any) -> Any:
        return _view(self._captured, ref.path) if isinstance(ref, ModuleRef) else ref

    def _attribute_names(self) -> list[str]:
        outline = self._outline()
        return sorted({*outline.children, *intermediate_fields(outline.cls)})

    def _item_names(self) -> list[str]:
        size = len(self._path)
        modules = {
            path[-1]
            for path in self._captured.outlines
            if len(path) == size + 1 and path[:size] == self._path
        }
        return sorted({*modules, *self._values()})

    def _missing_message(self, name: str) -> str:
        return (
            f"No intermediate values at {name!r}. Only sub-modules and intermediate "
            f"values are available: {self._attribute_names()}; by item, as in "
            f"`intermediates['Dense_0']`: {self._item_names()}."
        )


_UNKNOWN = ModuleOutline(cls=object, children={})


def _view(captured: Captured, path: Path) -> Intermediates:
    found = captured.views.get(path)
    if found is None:
        found = captured.views[path] = Intermediates(captured, path)
    return found


def _too_early(name: str) -> str:
    return (
        f"{name!r}: cannot access intermediate values from within the `with "
        "model.capture_intermediates()` block. Read them after it."
    )


# ----------------------------------------------------------------------------------
# As a pytree
# ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Static:
    path: Path
    outlines: dict[Path, ModuleOutline] = dataclasses.field(hash=False)


def _flatten(intermediates: Intermediates) -> tuple[tuple[Any], _Static]:
    captured, path = intermediates._captured, intermediates._path
    selection = Selection(whole=frozenset(_reachable(captured, path)))
    values = selection.prune(captured.values)
    return (dict(values),), _Static(path, captured.outlines)


def _reachable(captured: Captured, path: Path) -> set[Path]:
    """Modules below a module, wherever flax keeps them."""
    found = {path}
    todo = [path]
    while todo:
        outline = captured.outlines.get(todo.pop(), _UNKNOWN)
        for _, ref in iterate_structure(tuple(outline.children.values())):
            if isinstance(ref, ModuleRef) and ref.path not in found:
                found.add(ref.path)
                todo.append(ref.path)
    return found


def _unflatten(static: _Static, children: tuple[Any]) -> Intermediates:
    return Intermediates(Captured(children[0], static.outlines), static.path)


jax.tree_util.register_pytree_with_keys(
    Intermediates,
    lambda node: (
        ((jax.tree_util.GetAttrKey("values"), _flatten(node)[0][0]),),
        _flatten(node)[1],
    ),
    _unflatten,
    _flatten,
)
