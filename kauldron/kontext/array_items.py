"""Items of arrays and of array specs, without wrong data and without a device."""

from __future__ import annotations

import sys
from typing import Any

from kauldron.path_grammar import Part

SHAPE_ATTRIBUTES = ("T", "mT")
"""Attributes of arrays that are arrays too, and that specs lack."""


def shape_and_dtype(value: Any) -> tuple[tuple[Any, ...], Any] | None:
    """What describes an array or a spec of one; None for everything else."""
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    except Exception:  # a property of the user's: asking what this is must not fail
        return None
    if not isinstance(shape, tuple) or dtype is None:
        return None
    return shape, dtype


def is_array_spec(value: Any) -> bool:
    """Whether this stands for an array: it has a shape and a dtype, but no items."""
    has_items = hasattr(type(value), "__getitem__")
    return not has_items and shape_and_dtype(value) is not None


def spec_item(spec: Any, part: Part) -> Any:
    """The spec of `array[part]`, or of one of the `SHAPE_ATTRIBUTES`.

    Raises:
      IndexError: There is no such item.
    """
    import numpy as np  # whoever has array specs has numpy

    # One byte, seen as an array of any shape.
    stand_in: Any = np.broadcast_to(np.False_, spec.shape)
    item = getattr(stand_in, part) if isinstance(part, str) else stand_in[part]
    return type(spec)(shape=item.shape, dtype=spec.dtype)


def check_bounds(array: Any, part: Part) -> None:
    """Raises `IndexError` where a jax array would answer with its nearest item."""
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
    """The indices that count from the first axis, and those from the last one."""
    where = next((i for i, axis in enumerate(axes) if axis is ...), len(axes))
    return _consuming(axes[:where]), _consuming(axes[where + 1 :])


def _consuming(axes: tuple[Any, ...]) -> list[Any]:
    # None and booleans add an axis instead of indexing one.
    return [a for a in axes if a is not None and not isinstance(a, bool)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
