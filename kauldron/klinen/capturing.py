"""Recording the intermediate values of calls."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import flax.linen as nn

from kauldron.klinen.captured import (
    Captured,
    Intermediates,
    ModuleOutline,
    ModuleRef,
)
from kauldron.klinen.definitions import Path, field_names, walk
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.method_calls import Method, call_method
from kauldron.klinen.structures import Location, iterate_structure, map_structure

if TYPE_CHECKING:
    from kauldron.klinen.view import View


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
    """The running blocks that record calls of this module."""
    blocks = [block for block in _running.get() if block.view.root is view.root]
    return [block for block in blocks if _covers(block.view, view)]


def _covers(outer: View, inner: View) -> bool:
    if inner.path[: len(outer.path)] == outer.path:
        return True
    paths = outer.root.blueprint.paths.items()  # shared modules are kept elsewhere
    size = len(outer.location)
    return any(p == inner.path and loc[:size] == outer.location for loc, p in paths)


def call(
    view: View,
    captures: list[_Capture],
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a module inside of the blocks that record it."""
    for block in captures:
        for path in block.called:
            size = min(len(path), len(view.path))
            if path[:size] == view.path[:size]:
                raise RuntimeError(
                    f"{type(view.definition).__name__} was called twice inside of one "
                    "`with model.capture_intermediates()` block: its values would "
                    "overwrite each other. Use one block per call."
                )
    output, captured = record(view, method, args, kwargs)
    for block in captures:
        block.called.append(view.path)
        _merge_outlines(block.captured.outlines, captured.outlines)
        _merge_values(block.captured.values, captured.values)
    return output


def record(
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
    """Also the modules that were not called."""
    outlines.setdefault(module.path, _outline(module))
    for value in list(vars(module).values()):
        for _, child in iterate_structure(value):
            if _is_running(child) and child.path not in outlines:
                _note_all(child, outlines)


def _use_containers_of_definition(
    outlines: dict[Path, ModuleOutline], view: View
) -> None:
    """While flax runs a module, its lists are tuples: show what the user wrote."""
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
    """Each call knows the attributes of those modules whose `setup()` it ran."""
    for path, outline in outlines.items():
        children = into[path].children if path in into else {}
        into[path] = ModuleOutline(outline.cls, {**children, **outline.children})


def _merge_values(into: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge_values(into[name], value)
        else:
            into[name] = value
