"""Attributes that a module gets in `setup()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flax.linen as nn

from kauldron.klinen.definitions import attribute, field_names, walk
from kauldron.klinen.structures import Location, map_structure

if TYPE_CHECKING:
    from kauldron.klinen.view import View


def find_setup_attribute(view: View, name: str) -> tuple[Any, Location]:
    """The value of an attribute, with definitions in the place of modules.

    Args:
      view: The module.
      name: The attribute.

    Returns:
      The value and its location.
    """
    cls = type(view.definition)
    if cls.setup is nn.Module.setup:
        raise AttributeError(_missing_message(view, name))

    def read(module: nn.Module) -> Any:
        owner = walk(module, view.location)
        try:
            value = attribute(owner, name)
        except AttributeError as error:
            raise AttributeError(_missing_message(view, name)) from error
        return map_structure(lambda leaf, _: _as_definition(leaf, view, name), value)

    value, _ = view.root.run(read)
    return value, (*view.location, name)


def _as_definition(value: Any, view: View, name: str) -> Any:
    if isinstance(value, nn.Module):
        definition, _ = nn.Module.unbind(value)
        return definition
    if isinstance(value, nn.Variable):
        raise AttributeError(
            f"`{type(view.definition).__name__}.{name}` is a flax variable, which exists "
            "only inside of a call. Its value is in "
            f"`model.collections[{value.collection!r}][{value.name!r}]`."
        )
    return value


def _missing_message(view: View, name: str) -> str:
    cls = type(view.definition)
    fields = ", ".join(field_names(cls)) or "none"
    return (
        f"{cls.__name__!r} object has no attribute {name!r}: it is neither a field "
        f"({fields}) nor set in `setup()`. Modules that are made inside of a call have "
        "no attribute; their parameters are in `model.params['<name>']`."
    )
