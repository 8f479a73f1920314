"""Picking entries along an axis."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms import tensorflow_forms
from kauldron.data.transforms.array_family import as_array, is_jax, is_tf
from kauldron.data.transforms.element_wise import ElementWiseTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gather(ElementWiseTransform):
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

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "axis", _as_int(self.axis, "axis"))
        if isinstance(self.indices, str) or not hasattr(self.indices, "__iter__"):
            raise TypeError(f"Gather(indices={self.indices!r}): expected several ints.")
        indices = tuple(_as_int(index, "indices") for index in self.indices)
        object.__setattr__(self, "indices", indices)

    def map_element(self, element: Any) -> Any:
        return self._take(as_array(element), first_axis=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._take(as_array(elements), first_axis=1)

    def _take(self, array: Any, first_axis: int) -> Any:
        rank = len(array.shape) - first_axis
        if not -rank <= self.axis < rank:
            shape = tuple(array.shape[first_axis:])
            raise IndexError(f"Gather(axis={self.axis}): the shape is {shape}.")
        axis = self.axis if self.axis < 0 else self.axis + first_axis
        indices = _from_zero(self.indices, array.shape[axis])
        if is_tf(array):
            return tensorflow_forms.gather(array, self.indices, axis)
        if is_jax(array):
            import jax.numpy as jnp

            return jnp.take(array, indices, axis=axis)
        return np.take(array, indices, axis=axis)


def _from_zero(indices: Sequence[int], size: int | None) -> np.ndarray:
    """The indices without negative ones. TensorFlow alone knows no size: unchanged."""
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
