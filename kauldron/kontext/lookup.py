"""One step of a path: from a value to its item or attribute."""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Sequence
from typing import Any

from kauldron.kontext import nodes
from kauldron.path_grammar import Part


class _Missing(enum.Enum):
    MISSING = enum.auto()


MISSING = _Missing.MISSING
"""What `child` returns when there is nothing."""

_BOUND_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def walk(value: Any, parts: Sequence[Part]) -> tuple[Any, int]:
    """Follow the parts as far as they lead.

    Returns the value reached, and the number of parts that led there: if it is below
    `len(parts)`, the part at that position leads nowhere.
    """
    for count, part in enumerate(parts):
        found = child(value, part)
        if found is MISSING:
            return value, count
        value = found
    return value, len(parts)


def child(value: Any, part: Part) -> Any:
    """Return the item of `value`, else its attribute, else `MISSING`."""
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
    if found is MISSING and _may_be_of_spec(part) and is_array_spec(value):
        found = _item_of_spec(value, part)
    return found


def _item(value: Any, part: Part) -> Any:
    if nodes.is_mapping(value) and not nodes.has_key(value, part):
        return MISSING  # asking for the item could create it
    try:
        if hasattr(type(value), "__getitem__"):
            if not isinstance(part, str):
                check_bounds(value, part)
            return value[part]
    except (TypeError, IndexError, KeyError):
        pass
    return MISSING


def _may_be_of_spec(part: Part) -> bool:
    # For any other name the shape of the value does not matter.
    return not isinstance(part, str) or part in SHAPE_ATTRIBUTES


def _item_of_spec(value: Any, part: Part) -> Any:
    try:
        return spec_item(value, part)
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
    """Return whether the class has a descriptor of this name, such as a property."""
    for base in cls.__mro__:
        if name in vars(base):
            return not isinstance(vars(base)[name], types.MemberDescriptorType)
    return False


def _is_container(value: Any) -> bool:
    return nodes.is_mapping(value) or isinstance(value, (list, tuple, str))


#
# Items of arrays and of array specs, without wrong data and without a device
#


SHAPE_ATTRIBUTES = ("T", "mT")
"""Attributes of arrays that are arrays too, and that specs lack."""


def shape_and_dtype(value: Any) -> tuple[tuple[Any, ...], Any] | None:
    """Return what describes an array or a spec of one; None for everything else."""
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    except Exception:  # a property of the user's: asking what this is must not fail
        return None
    if not isinstance(shape, tuple) or dtype is None:
        return None
    return shape, dtype


def is_array_spec(value: Any) -> bool:
    """Return whether this has the shape and dtype of an array, but no items."""
    has_items = hasattr(type(value), "__getitem__")
    return not has_items and shape_and_dtype(value) is not None


def spec_item(spec: Any, part: Part) -> Any:
    """Return the spec of `array[part]`, or of one of the `SHAPE_ATTRIBUTES`.

    Raises:
      IndexError: There is no such item.
    """
    import numpy as np  # array specs come from libraries that need it

    # One byte, seen as an array of any shape.
    stand_in: Any = np.broadcast_to(np.False_, spec.shape)
    item = getattr(stand_in, part) if isinstance(part, str) else stand_in[part]
    return type(spec)(shape=item.shape, dtype=spec.dtype)


def check_bounds(array: Any, part: Part) -> None:
    """Raise `IndexError` where a jax array would answer with its nearest item."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(array, jax.Array):
        return
    axes = part if isinstance(part, tuple) else (part,)
    before, after = _split_at_ellipsis(axes)
    sizes = array.shape
    for index, size in [*zip(before, sizes), *zip(reversed(after), reversed(sizes))]:
        if _is_integer(index) and _is_integer(size) and not -size <= index < size:
            raise IndexError(
                f"index {index} is out of range for an axis of size {size}"
            )


def _split_at_ellipsis(axes: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the indices counted from the first axis, and those from the last."""
    where = next((i for i, axis in enumerate(axes) if axis is ...), len(axes))
    return _consuming(axes[:where]), _consuming(axes[where + 1 :])


def _consuming(axes: tuple[Any, ...]) -> list[Any]:
    # None and booleans add an axis instead of indexing one.
    return [a for a in axes if a is not None and not isinstance(a, bool)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
