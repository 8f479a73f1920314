"""One step of a path: from a value to its item or attribute."""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any

from kauldron.kontext import array_items, nodes
from kauldron.path_grammar import Part


class _Missing(enum.Enum):
    MISSING = enum.auto()


MISSING = _Missing.MISSING
"""What `child` returns when there is nothing."""

_BOUND_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def walk(value: Any, parts: Sequence[Part]) -> tuple[Any, int]:
    """Follows the parts as far as they lead.

    Returns:
      The value reached, and the number of parts that led there. A number below
      `len(parts)` means that the part at that position leads nowhere.
    """
    for count, part in enumerate(parts):
        found = child(value, part)
        if found is MISSING:
            return value, count
        value = found
    return value, len(parts)


def child(value: Any, part: Part) -> Any:
    """The item of `value`, else its attribute, else `MISSING`. Never changes it."""
    kind = type(value)
    if kind is dict:
        try:
            return value.get(part, MISSING)
        except TypeError:  # unhashable
            return MISSING
    if kind is list or kind is tuple or kind is str:
        try:
            return value[part]
        except (TypeError, IndexError):
            return MISSING
    found = _item(value, part)
    if found is MISSING and isinstance(part, str):
        found = _attribute(value, part)
    if found is MISSING and _may_be_of_spec(part) and array_items.is_array_spec(value):
        found = _item_of_spec(value, part)
    return found


def _item(value: Any, part: Part) -> Any:
    if nodes.is_mapping(value) and not nodes.has_key(value, part):
        return MISSING  # asking for the item could create it
    try:
        if hasattr(type(value), "__getitem__"):
            if not isinstance(part, str):
                array_items.check_bounds(value, part)
            return value[part]
    except (TypeError, IndexError, KeyError):
        pass
    return MISSING


def _may_be_of_spec(part: Part) -> bool:
    # Any other name is no reason to look whether the value has a shape.
    return not isinstance(part, str) or part in array_items.SHAPE_ATTRIBUTES


def _item_of_spec(value: Any, part: Part) -> Any:
    try:
        return array_items.spec_item(value, part)
    except (TypeError, IndexError, ValueError):
        return MISSING


def _attribute(value: Any, name: str) -> Any:
    try:
        found = getattr(value, name)
    except AttributeError:
        if _is_computed(type(value), name):
            raise  # not a miss: the user's own code failed
        return MISSING
    if isinstance(found, _BOUND_METHODS) and _is_container(value):
        return MISSING
    return found


def _is_computed(cls: type, name: str) -> bool:
    """Whether the class has a descriptor of this name, such as a property."""
    for base in cls.__mro__:
        if name in vars(base):
            return not isinstance(vars(base)[name], types.MemberDescriptorType)
    return False


def _is_container(value: Any) -> bool:
    return nodes.is_mapping(value) or isinstance(value, (list, tuple, str))
