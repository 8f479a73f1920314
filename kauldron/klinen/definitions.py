"""Modules as definitions: what a user wrote down, without parameters.

The sub-modules of a definition stand in fields, and there in lists, tuples and dicts.
Definitions are copied, compared and pickled here, and walked while flax runs them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np

#
# Lists, tuples and dicts with modules inside
#


Step = Any  # the name of an attribute, or the index or key of a container's item
Location = tuple[Step, ...]


def map_structure(
    fn: Callable[[Any, Location], Any], value: Any, location: Location = ()
) -> Any:
    """Replace what is inside (nested) containers; their types and orders stay.

    `fn` takes what is not a container and its location.

    Example:
      >>> map_structure(lambda leaf, where: (leaf, where), {"b": [1, 2], "a": 3})
      {'b': [(1, ('b', 0)), (2, ('b', 1))], 'a': (3, ('a',))}
    """
    if isinstance(value, Mapping):
        items = {k: map_structure(fn, v, (*location, k)) for k, v in value.items()}
        if type(value) is dict:
            return items
        if all(items[key] is value[key] for key in items):
            return value
        make: Any = type(value)
        return make(items)
    if isinstance(value, list | tuple):
        new = [map_structure(fn, v, (*location, i)) for i, v in enumerate(value)]
        if type(value) is list:
            return new
        if all(map(operator.is_, new, value)):
            return value
        make = type(value)
        return make(*new) if hasattr(value, "_fields") else make(new)
    return fn(value, location)


def iterate_structure(
    value: Any, location: Location = ()
) -> list[tuple[Location, Any]]:
    """Return what is inside (nested) containers, with its location.

    >>> iterate_structure({"b": [1], "a": 3})
    [(('b', 0), 1), (('a',), 3)]
    """
    found: list[tuple[Location, Any]] = []

    def note(leaf: Any, where: Location) -> Any:
        found.append((where, leaf))
        return leaf

    map_structure(note, value, location)
    return found


def map_modules(
    kind: type, make: Callable[[Any, Callable[[Any], Any]], Any], value: Any
) -> Any:
    """Replace what is of a kind in (nested) containers; what is one object becomes one.

    `make` takes such an object, and a function that does the same to its fields.
    """
    made: dict[int, tuple[Any, Any]] = {}  # the object is kept, and with it its id

    def replace(leaf: Any, _: Location) -> Any:
        if not isinstance(leaf, kind):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = leaf, make(leaf, replace_in)
        return made[id(leaf)][1]

    def replace_in(fields: Any) -> Any:
        return map_structure(replace, fields)

    return replace_in(value)


#
# Pickles of modules
#


# Converted classes have, under this name, a call of `convert` that makes them.
REMAKE = "__klinen_remake__"


@dataclasses.dataclass(frozen=True, eq=False)
class PackedModule:
    """A module without parameters, to be pickled.

    Attributes:
      cls: Its class, or for a converted class the call that makes it.
      fields: Values of its fields; modules in there are packed too. What is one module
        is one object here.
    """

    cls: type[nn.Module] | functools.partial[type[nn.Module]]
    fields: dict[str, Any]


def pack(module: nn.Module) -> PackedModule:
    """Return the form of a module to pickle."""

    def make(module: nn.Module, pack_in: Callable[[Any], Any]) -> PackedModule:
        fields = pack_in(_changed_fields(module))
        return PackedModule(_picklable_class(type(module)), fields)

    return map_modules(nn.Module, make, module)


def unpack(packed: PackedModule) -> Any:
    """Return the module again, without parameters."""

    def make(packed: PackedModule, unpack_in: Callable[[Any], Any]) -> nn.Module:
        is_call = isinstance(packed.cls, functools.partial)
        cls = packed.cls() if is_call else packed.cls
        return cls(parent=None, **unpack_in(packed.fields))

    return map_modules(PackedModule, make, packed)


def _changed_fields(module: nn.Module) -> dict[str, Any]:
    return {
        field.name: getattr(module, field.name)
        for field in dataclasses.fields(module)
        if field.init
        and field.name != "parent"
        and getattr(module, field.name) is not field.default
    }


def _picklable_class(cls: type[nn.Module]) -> Any:
    if REMAKE not in vars(cls):
        return cls
    try:
        found = operator.attrgetter(cls.__qualname__)(sys.modules[cls.__module__])
    except (KeyError, AttributeError):
        found = None
    # Where `convert` was used as a decorator, the name leads to the converted class.
    return cls if found is cls else vars(cls)[REMAKE]


#
# Definitions
#


Path = tuple[str, ...]  # where flax keeps the variables of a module


class Blueprint:
    """The definition of a whole model; equal to one that computes the same.

    Attributes:
      definition: The root module, without parameters. Never changed, never given away.
    """

    def __init__(self, definition: nn.Module):
        self.definition = definition
        # Which variables the sub-module at a location needs: see `needed_variables`.
        self.selections: dict[Location, Any] = {}

    @functools.cached_property
    def paths(self) -> dict[Location, Path]:
        """Paths of all modules that are reachable through fields, in flax's order."""
        return nn.apply(field_paths, self.definition)({})

    @functools.cached_property
    def first_locations(self) -> dict[Path, Location]:
        """The first place of each module: a shared one has several."""
        return {path: loc for loc, path in reversed(list(self.paths.items()))}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blueprint):
            return NotImplemented
        same = self.definition is other.definition
        return same or _Comparison().is_same(self.definition, other.definition)

    def __hash__(self) -> int:
        return hash(type(self.definition))  # fields may be lists or dicts

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_blueprint, (pack(self.definition),)


def _restore_blueprint(definition: PackedModule) -> Blueprint:
    return Blueprint(unpack(definition))


def field_names(cls: type[nn.Module]) -> list[str]:
    """Return the names of the fields that make up the definition."""
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.name not in ("parent", "name")
    ]


def walk(module: nn.Module, location: Location) -> Any:
    """Return what is at a location below a module that flax runs."""
    found: Any = module
    for step in location:
        found = attribute(found, step) if isinstance(found, nn.Module) else found[step]
    return found


def attribute(module: nn.Module, name: str) -> Any:
    """Return an attribute of a module that flax runs."""
    if name not in field_names(type(module)):
        dir(module)  # flax runs `setup()` for it; a class's default would hide that
    return getattr(module, name)


def field_paths(module: nn.Module, location: Location = ()) -> dict[Location, Path]:
    """Return the path of a module that flax runs, and of those in its fields."""
    paths: dict[Location, Path] = {location: module.path}
    for name in field_names(type(module)):
        value = getattr(module, name)
        for where, child in iterate_structure(value, (*location, name)):
            if isinstance(child, nn.Module):
                paths |= field_paths(child, where)
    return paths


def copy_definition(module: nn.Module) -> nn.Module:
    """Return a copy without parameters that later changes of the original do not reach.

    Bound models in fields become their definitions. What is one module in the
    original is one in the copy.
    """

    def make(module: nn.Module, copy_in: Callable[[Any], Any]) -> nn.Module:
        names = field_names(type(module))
        return module.clone(**copy_in({name: getattr(module, name) for name in names}))

    return map_modules(nn.Module, make, module)


class _Comparison:
    """Compares fields by value, arrays by identity, and what is shared with what."""

    def __init__(self) -> None:
        self._partners: dict[int, int] = {}

    def is_same(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return False
        if isinstance(a, nn.Module):
            return self._is_same_module(a, b)
        if isinstance(a, Mapping):
            return list(a) == list(b) and all(self.is_same(a[k], b[k]) for k in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(self.is_same, a, b))
        if a is b:
            return True
        if isinstance(a, jax.Array | np.ndarray):
            return False
        try:
            return bool(a == b)
        except Exception:  # what cannot be compared is the same only as itself
            return False

    def _is_same_module(self, a: nn.Module, b: nn.Module) -> bool:
        if id(a) in self._partners or id(b) in self._partners:
            return self._partners.get(id(a)) == id(b)
        self._partners |= {id(a): id(b), id(b): id(a)}
        return all(
            self.is_same(getattr(a, field.name), getattr(b, field.name))
            for field in dataclasses.fields(a)
            if field.init and field.compare and field.name != "parent"
        )


#
# Calls of a method
#


Method = str | Callable[..., Any] | None


def call_method(
    module: nn.Module,
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a method of a module that flax runs.

    `method` is a name; a method of this or another instance, or of its class; a
    function that takes the module first; or `None` for `__call__`.
    """
    if isinstance(getattr(method, "__self__", None), nn.Module):
        method = getattr(method, "__name__", None)
    if method is None or method == "__call__":
        return module(*args, **kwargs)
    if isinstance(method, str):
        return getattr(module, method)(*args, **kwargs)
    if callable(method):
        return method(module, *args, **kwargs)
    raise TypeError(
        "`method` is the name of a method or a function that takes the module, not "
        f"{type(method).__name__}: {method!r:.80}."
    )
