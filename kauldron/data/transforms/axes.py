"""Transforms of axes: `Rearrange` in einops notation, and `Gather`."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import einops
import numpy as np
from einops.parsing import ParsedExpression

from kauldron.data.transforms.values import ArrayTransform, array_module, is_tf, tf
from kauldron.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rearrange(ArrayTransform):
    """`einops.rearrange` of a field.

    Attributes:
      key: The field or fields to rearrange.
      pattern: Such as `"h w -> h w 1"`, about the axes of one record.
      axes_lengths: Sizes of axes that the pattern alone does not fix.

    Example:
      >>> Rearrange(key="label", pattern="... -> ... 1").map({"label": 3})
      {'label': array([3])}
    """

    pattern: str
    axes_lengths: Mapping[str, int] = ImmutableDict()

    _operation: ClassVar[Callable[..., Any]] = staticmethod(einops.rearrange)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "axes_lengths", ImmutableDict(self.axes_lengths))
        _batch_pattern(self.pattern)  # raises for an invalid pattern

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        pattern = _batch_pattern(self.pattern) if num_batch_axes else self.pattern
        return self._operation(array, pattern, **self.axes_lengths)


@functools.lru_cache(maxsize=1024)
def _batch_pattern(pattern: str) -> str:
    """Return the pattern with one more axis in front.

    >>> _batch_pattern("h w -> (h w)")
    'batch h w -> batch (h w)'

    Raises:
      ValueError: It is not a pattern.
    """
    try:
        left, right = pattern.split("->")
        names = ParsedExpression(left).identifiers | ParsedExpression(right).identifiers
    except (ValueError, AttributeError, einops.EinopsError) as error:
        raise ValueError(
            f"pattern={pattern!r} is not of the form 'h w c -> h (w c)': {error}"
        ) from error
    axis = "batch"
    while axis in names:
        axis += "0"
    return f"{axis} {left.strip()} -> {axis} {right.strip()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gather(ArrayTransform):
    """Takes the entries at `indices` along `axis`.

    Attributes:
      key: The field or fields to take from.
      axis: Of one record; negative counts from the last.
      indices: Negative ones count from the end. Outside of the axis: `IndexError`.

    Example:
      >>> Gather(key="x", axis=0, indices=(2, -1)).map({"x": [10, 11, 12, 13]})
      {'x': array([12, 13])}
    """

    axis: int
    indices: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "axis", _as_int(self.axis, "axis"))
        if isinstance(self.indices, str) or not hasattr(self.indices, "__iter__"):
            raise TypeError(
                f"Gather(indices={self.indices!r}): expected a list of ints."
            )
        indices = tuple(_as_int(index, "indices") for index in self.indices)
        object.__setattr__(self, "indices", indices)

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        shape = tuple(array.shape[num_batch_axes:])
        if not -len(shape) <= self.axis < len(shape):
            raise IndexError(
                f"Gather(axis={self.axis}): out of range for the shape {shape}."
            )
        axis = self.axis if self.axis < 0 else self.axis + num_batch_axes
        indices = _from_zero(self.indices, array.shape[axis])
        if is_tf(array):
            return _gather_from_tensor(array, self.indices, axis)
        return array_module(array).take(array, indices, axis=axis)


def _from_zero(indices: Sequence[int], size: int | None) -> np.ndarray:
    """Return the indices counted from the start, or as they are if `size` is `None`."""
    array = np.asarray(indices, np.intp)
    if size is None:
        return array
    outside = array[(array < -size) | (array >= size)]
    if outside.size:
        raise IndexError(
            f"Gather(indices={tuple(indices)}): {outside[0]} is out of range for an"
            f" axis of size {size}."
        )
    return np.where(array < 0, array + size, array)


def _as_int(value: Any, argument: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"Gather({argument}=...): {value!r} is not an int.") from None


def _gather_from_tensor(tensor: Any, indices: Sequence[int], axis: int) -> Any:
    """`Gather`; negative indices count from the end."""
    wanted = tf.constant(indices, tf.int32)
    size = tf.shape(tensor)[axis]
    outside = tf.reduce_any((wanted < -size) | (wanted >= size))
    check = tf.debugging.Assert(~outside, ["Gather: index out of range", wanted, size])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.gather(tensor, tf.where(wanted < 0, wanted + size, wanted), axis=axis)
