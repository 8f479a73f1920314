"""Resizing by the shorter edge."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.data.transforms import resize_weights
from kauldron.data.transforms.array_family import as_array, is_integer
from kauldron.data.transforms.element_wise import ElementWiseTransform
from kauldron.data.transforms.resize import Resize


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResizeSmall(ElementWiseTransform):
    """Resizes images so that their shorter edge gets a size; see `Resize`.

    Attributes:
      key: The field or fields to resize.
      smaller_size: The new size of the shorter edge.
      method: As in `Resize`, or `"AUTO"`: `nearest` for integers, `area` for floats.

    Example:
      >>> import numpy as np
      >>> image = np.zeros((32, 48, 3), np.float32)
      >>> ResizeSmall(key="x", smaller_size=16).map({"x": image})["x"].shape
      (16, 24, 3)
    """

    smaller_size: int
    method: str = "AUTO"

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._resize_for(None)  # raises for sizes that make no sense
        if self.method.upper() != "AUTO":
            object.__setattr__(self, "method", resize_weights.as_method(self.method))

    def map_element(self, element: Any) -> Any:
        array = as_array(element)
        return self._resize_for(array).map_element(array)

    def map_element_batch(self, elements: Any) -> Any:
        array = as_array(elements)
        return self._resize_for(array).map_element_batch(array)

    def _resize_for(self, array: Any) -> Resize:
        method: str | None = self.method
        if self.method.upper() == "AUTO":
            method = "nearest" if array is None or is_integer(array) else "area"
        return Resize(key=self.key, min_size=self.smaller_size, method=method)
