"""The middle of an array."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kauldron.data.transforms import tensorflow_forms
from kauldron.data.transforms.array_family import as_array, is_tf
from kauldron.data.transforms.crop_shape import as_crop_shape, check_crop_fits
from kauldron.data.transforms.element_wise import ElementWiseTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCrop(ElementWiseTransform):
    """Cuts the middle out of an array of any rank.

    Attributes:
      key: The field or fields to crop.
      shape: Size of the result along each axis; `None` keeps the axis as it is.

    Example:
      >>> import numpy as np
      >>> crop = CenterCrop(key="image", shape=(2, 2, None))
      >>> crop.map({"image": np.zeros((5, 4, 3))})["image"].shape
      (2, 2, 3)
    """

    shape: Sequence[int | None]

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_crop_shape(self.shape, self))

    def map_element(self, element: Any) -> Any:
        array = as_array(element)
        if is_tf(array):
            return tensorflow_forms.center_crop(array, self.shape, self)
        return array[self._slices(array.shape)]

    def map_element_batch(self, elements: Any) -> Any:
        array = as_array(elements)
        return array[:, *self._slices(array.shape[1:])]

    def _slices(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        check_crop_fits(self.shape, shape, self)
        return tuple(
            slice(None) if target is None else _middle(size, target)
            for target, size in zip(self.shape, shape)
        )


def _middle(size: int, target: int) -> slice:
    start = (size - target) // 2
    return slice(start, start + target)
