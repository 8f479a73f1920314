"""The intermediate values of a call: recording them, and how users read them.

A recorded call gives back what its modules stored as `Intermediates`, which has the
attributes of the model.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from kauldron.errors import ReadableKeyError
from kauldron.klinen.definitions import (
    Location,
    Method,
    Path,
    call_method,
    field_names,
    iterate_structure,
    map_structure,
    walk,
)
from kauldron.klinen.intermediate_fields import (
    COLLECTION,
    UNSET,
    intermediate_fields,
)
from kauldron.klinen.variables import Selection

if TYPE_CHECKING:
    from kauldron.klinen.view import View

#
# What users get
#


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
        `None` for everything else.
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
    `intermediates.encoder['name']`; modules that are made inside a call are
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
            raise ReadableKeyError(_too_early(name))
        values = self._values()
        path = (*self._path, name)
        is_value = name in intermediate_fields(self._outline().cls)
        if path in self._captured.outlines:
            return _view(self._captured, path)
        if name not in values:
            raise ReadableKeyError(
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
    """Return the modules below a module, wherever flax keeps them."""
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


def _flatten_with_keys(intermediates: Intermediates) -> tuple[tuple[Any], _Static]:
    (values,), static = _flatten(intermediates)
    return ((jax.tree_util.GetAttrKey("values"), values),), static


jax.tree_util.register_pytree_with_keys(Intermediates, _flatten_with_keys, _unflatten)


#
# Recording calls
#


@dataclasses.dataclass(eq=False)
class _Capture:
    """A `with` block that is being executed.

    Attributes:
      view: The module whose calls are recorded.
      captured: What was recorded so far.
      called: Paths of the modules that were called.
    """

    view: View
    captured: Captured
    called: list[Path] = dataclasses.field(default_factory=list)


_running: contextvars.ContextVar[tuple[_Capture, ...]] = contextvars.ContextVar(
    "klinen_captures", default=()
)


@contextlib.contextmanager
def capture(view: View) -> Iterator[Intermediates]:
    """See `Module.capture_intermediates`."""
    name = type(view.definition).__name__
    for outer in _running.get():
        if outer.view.root is view.root and outer.view.path == view.path:
            raise RuntimeError(
                f"`capture_intermediates()` cannot be nested: this {name} is already "
                "being captured."
            )
    this = _Capture(view, Captured(is_complete=False))
    token = _running.set((*_running.get(), this))
    try:
        yield Intermediates(this.captured, view.path)
    finally:
        _running.reset(token)
    if not this.called:
        raise RuntimeError(
            f"Nothing was captured: this very {name}, or one of its sub-modules, has to "
            "be called inside the `with model.capture_intermediates()` block. A copy, "
            "such as `model.eval()` or `model.with_rng(key)`, is another model."
        )
    this.captured.is_complete = True


def captures_of(view: View) -> list[_Capture]:
    """Return the running blocks that record calls of this module."""
    return [block for block in _running.get() if _covers(block.view, view)]


def _covers(outer: View, inner: View) -> bool:
    if inner.root is not outer.root:
        return False
    if inner.path[: len(outer.path)] == outer.path:
        return True
    paths = outer.root.blueprint.paths.items()  # shared modules are kept elsewhere
    size = len(outer.location)
    return any(p == inner.path and loc[:size] == outer.location for loc, p in paths)


def recorded_call(
    view: View,
    captures: list[_Capture],
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a module inside the blocks that record it."""
    for block in captures:
        for path in block.called:
            size = min(len(path), len(view.path))
            if path[:size] == view.path[:size]:
                raise RuntimeError(
                    f"{type(view.definition).__name__} was called twice inside one "
                    "`with model.capture_intermediates()` block: its values would "
                    "overwrite each other. Use one block per call."
                )
    output, captured = call_and_record(view, method, args, kwargs)
    for block in captures:
        block.called.append(view.path)
        _merge_outlines(block.captured.outlines, captured.outlines)
        _merge_values(block.captured.values, captured.values)
    return output


def call_and_record(
    view: View, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Captured]:
    """Call a module and return its output and intermediate values."""
    outlines: dict[Path, ModuleOutline] = {}

    def note_module(
        call_next: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: Any,
    ) -> Any:
        output = call_next(*args, **kwargs)
        if context.module.scope is not None:
            outlines[context.module.path] = _outline(context.module)
        return output

    def run(root: nn.Module) -> Any:
        module = walk(root, view.location)
        with nn.intercept_methods(note_module):
            output = call_method(module, method, args, kwargs)
        _note_all(root, outlines)
        return output

    output, variables = view.root.run(run, keep_intermediates=True)
    _use_containers_of_definition(outlines, view)
    values = dict(variables.get(COLLECTION, {}))
    return output, Captured(values, outlines)


def _outline(module: nn.Module) -> ModuleOutline:
    attributes = {
        name: map_structure(_as_ref, value)
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "parent" and _has_modules(value)
    }
    return ModuleOutline(type(module), attributes)


def _as_ref(value: Any, _: Location = ()) -> ModuleRef | None:
    return ModuleRef(value.path) if _is_running(value) else None


def _is_running(value: Any) -> bool:
    return isinstance(value, nn.Module) and value.scope is not None


def _has_modules(value: Any) -> bool:
    return any(_is_running(leaf) for _, leaf in iterate_structure(value))


def _note_all(module: nn.Module, outlines: dict[Path, ModuleOutline]) -> None:
    """Add the modules that were not called."""
    outlines.setdefault(module.path, _outline(module))
    for value in list(vars(module).values()):
        for _, child in iterate_structure(value):
            if _is_running(child) and child.path not in outlines:
                _note_all(child, outlines)


def _use_containers_of_definition(
    outlines: dict[Path, ModuleOutline], view: View
) -> None:
    """Show lists as the user wrote them: while flax runs a module, they are tuples."""
    blueprint = view.root.blueprint
    for location, path in blueprint.paths.items():
        if path not in outlines:
            continue
        definition = walk(blueprint.definition, location)
        children = dict(outlines[path].children)
        for name in children.keys() & set(field_names(type(definition))):
            children[name] = map_structure(
                lambda leaf, where: (
                    ModuleRef(blueprint.paths[where])
                    if isinstance(leaf, nn.Module)
                    else None
                ),
                getattr(definition, name),
                (*location, name),
            )
        outlines[path] = ModuleOutline(outlines[path].cls, children)


def _merge_outlines(
    into: dict[Path, ModuleOutline], outlines: dict[Path, ModuleOutline]
) -> None:
    """Merge what calls know: the attributes of modules whose `setup()` they ran."""
    for path, outline in outlines.items():
        children = into[path].children if path in into else {}
        into[path] = ModuleOutline(outline.cls, {**children, **outline.children})


def _merge_values(into: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge_values(into[name], value)
        else:
            into[name] = value
