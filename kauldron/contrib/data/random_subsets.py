"""Random parts of sequences and of sets of points."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.data.transforms import ElementWiseRandomTransform
from kauldron.data.transforms.values import as_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSubsetAlongAxis(ElementWiseRandomTransform):
    """Keeps some entries of an axis, drawn without repetition, in their order.

    Attributes:
      key: The field or fields; those of one length keep the same entries.
      num_elements: How many entries to keep.
      axis: Which axis, of a record.

    Example:
      >>> subset = RandomSubsetAlongAxis(key="x", num_elements=3)
      >>> subset({"x": np.arange(10)}, np.random.default_rng(0))["x"]
      array([5, 6, 9])
    """

    num_elements: int
    axis: int = 0

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = as_array(element)
        size = _size_of(array, self.axis, self)
        kept = _draw(size, self.num_elements, rng, self)
        return array.take(kept, axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomDropTokens(ElementWiseRandomTransform):
    """Drops a part of the tokens `(..., tokens, channels)`; the others keep their order.

    Attributes:
      key: The field or fields; those of one length lose the same tokens.
      drop_rate: Part to drop, from 0 on and below 1; at least one token stays.
      axis: The axis of the tokens, of a record.
    """

    drop_rate: float
    axis: int = -2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.drop_rate < 1:
            raise ValueError(
                f"RandomDropTokens(drop_rate={self.drop_rate}): expected a part, from 0"
                " on and below 1."
            )

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = as_array(element)
        size = _size_of(array, self.axis, self)
        num_kept = min(size, max(1, round(size * (1 - self.drop_rate))))
        return array.take(_draw(size, num_kept, rng, self), axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsampleAndFlatten(ElementWiseRandomTransform):
    """All axes but the last as one, and of it some entries, as they come.

    For points of an image or a video, `(t, h, w, c) -> (num_elements, c)`.

    Attributes:
      key: The field or fields; those with as many points keep the same ones.
      num_elements: How many points to keep.
    """

    num_elements: int

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        array = as_array(element)
        if array.ndim < 2:
            raise ValueError(
                f"SubsampleAndFlatten expects (..., channels), got shape {array.shape}."
            )
        points = array.reshape(-1, array.shape[-1])
        return points[_draw(len(points), self.num_elements, rng, self)]


def _size_of(array: Any, axis: int, transform: Any) -> int:
    if not -array.ndim <= axis < array.ndim:
        raise IndexError(
            f"{type(transform).__name__}(axis={axis}): shape is {array.shape}."
        )
    return array.shape[axis]


def _draw(size: int, count: int, rng: np.random.Generator, transform: Any) -> Any:
    """Draw ascending numbers below `size`."""
    if not 0 <= count <= size:
        raise ValueError(
            f"{type(transform).__name__}: cannot keep {count} of {size} entries."
        )
    return np.sort(rng.choice(size, count, replace=False))
