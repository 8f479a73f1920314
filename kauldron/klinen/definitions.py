"""Modules as definitions: what a user wrote down, without parameters."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from kauldron.klinen.packed_modules import PackedModule, pack, unpack
from kauldron.klinen.structures import Location, iterate_structure, map_structure

Path = tuple[str, ...]  # where flax keeps the variables of a module


class Blueprint:
    """The definition of a whole model; equal to one that computes the same.

    Attributes:
      definition: The root module, without parameters. Never changed, never given away.
    """

    def __init__(self, definition: nn.Module):
        self.definition = definition
        # Which variables the sub-module at a location needs: see `handle_variables`.
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
        return _is_same(self.definition, other.definition)

    def __hash__(self) -> int:
        return hash(type(self.definition))  # fields may be lists or dicts

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_blueprint, (pack(self.definition),)


def _restore_blueprint(definition: PackedModule) -> Blueprint:
    return Blueprint(unpack(definition))


def field_names(cls: type[nn.Module]) -> list[str]:
    """Names of the fields that make up the definition."""
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.name not in ("parent", "name")
    ]


def walk(module: nn.Module, location: Location) -> Any:
    """What is at a location below a module that flax runs."""
    found: Any = module
    for step in location:
        found = attribute(found, step) if isinstance(found, nn.Module) else found[step]
    return found


def attribute(module: nn.Module, name: str) -> Any:
    """An attribute of a module that flax runs."""
    if name not in field_names(type(module)):
        dir(module)  # flax runs `setup()` for it; a class's default would hide that
    return getattr(module, name)


def field_paths(module: nn.Module, location: Location = ()) -> dict[Location, Path]:
    """Paths of the modules in the fields of a module that flax runs, and its own."""
    paths: dict[Location, Path] = {location: module.path}
    for name in field_names(type(module)):
        value = getattr(module, name)
        for where, child in iterate_structure(value, (*location, name)):
            if isinstance(child, nn.Module):
                paths |= field_paths(child, where)
    return paths


def copy_definition(module: nn.Module) -> nn.Module:
    """A copy without parameters that later changes of the original do not reach.

    Bound models in fields become their definitions. What is one module in the
    original is one in the copy.
    """
    copies: dict[int, tuple[nn.Module, nn.Module]] = {}

    def copy(value: Any, _: Location = ()) -> Any:
        if not isinstance(value, nn.Module):
            return value
        if id(value) not in copies:
            fields = {
                name: map_structure(copy, getattr(value, name))
                for name in field_names(type(value))
            }
            copies[id(value)] = value, value.clone(**fields)
        return copies[id(value)][1]

    return copy(module)


def _is_same(a: nn.Module, b: nn.Module) -> bool:
    if a is b:
        return True
    return _Comparison().is_same(a, b)


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
