"""The `shape` argument of crops."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any


def as_crop_shape(shape: Any, owner: Any) -> tuple[int | None, ...]:
    """The shape as a tuple of sizes and `None`.

    Raises:
      TypeError: It is not a sequence of ints and `None`.
      ValueError: A size is negative.
    """
    name = f"{type(owner).__name__}(shape={shape!r})"
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise TypeError(f"{name}: expected one size (or None) per axis.")
    try:
        sizes = tuple(None if size is None else operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(f"{name}: sizes are ints or None.") from None
    if any(size is not None and size < 0 for size in sizes):
        raise ValueError(f"{name}: a size is negative.")
    return sizes


def check_crop_fits(
    target: Sequence[int | None], shape: Sequence[int], owner: Any
) -> None:
    """Raise `ValueError` unless the crop has the rank of the array and fits into it."""
    if len(target) != len(shape):
        problem = f"has {len(target)} axes, but the field has shape {tuple(shape)}."
    elif any(size is not None and size > full for size, full in zip(target, shape)):
        problem = f"is larger than the field of shape {tuple(shape)}."
    else:
        return
    raise ValueError(f"{type(owner).__name__}(shape={tuple(target)}) {problem}")
