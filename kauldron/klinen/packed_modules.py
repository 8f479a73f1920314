"""Modules in a form that can be pickled.

Flax modules often cannot: the default initialisers of `nn.Dense` are local functions,
and converted classes have the name of the class they come from. So a module is pickled
as its class and those fields that differ from their defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from typing import Any

import flax.linen as nn

from kauldron.klinen.structures import Location, map_structure

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
    """The form of a module to pickle."""
    packed: dict[int, PackedModule] = {}

    def pack_value(value: Any, _: Location = ()) -> Any:
        if not isinstance(value, nn.Module):
            return value
        if id(value) not in packed:
            fields = map_structure(pack_value, _changed_fields(value))
            packed[id(value)] = PackedModule(_picklable_class(type(value)), fields)
        return packed[id(value)]

    return pack_value(module)


def unpack(packed: PackedModule) -> Any:
    """The module again, without parameters."""
    modules: dict[int, nn.Module] = {}

    def unpack_value(value: Any, _: Location = ()) -> Any:
        if not isinstance(value, PackedModule):
            return value
        if id(value) not in modules:
            cls = value.cls() if isinstance(value.cls, functools.partial) else value.cls
            fields = map_structure(unpack_value, value.fields)
            modules[id(value)] = cls(parent=None, **fields)
        return modules[id(value)]

    return unpack_value(packed)


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
