"""Resizing to a fixed height and width."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.data.transforms import resize as neutral
from kauldron.data.transforms import resize_weights
from kauldron.data.transforms.array_family import as_array, is_integer
from kauldron.data.transforms.element_wise import ElementWiseTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(ElementWiseTransform):
    """Resizes images `(..., h, w, c)`.

    Attributes:
      key: The field or fields to resize.
      height: Of the result.
      width: Of the result.
      method: As in `kd.data.Resize`, or `"AUTO"`: `nearest` for integers, `area` for
        floats.
    """

    height: int
    width: int
    method: str = "AUTO"

    __kd_data_backend__ = "tf"

    def __post_init__(self) -> None:
        super().__post_init__()
        neutral.as_size((self.height, self.width), "height, width")
        if self.method.upper() != "AUTO":
            resize_weights.as_method(self.method)

    def map_element(self, element: Any) -> Any:
        method = self.method
        if method.upper() == "AUTO":
            method = "nearest" if is_integer(as_array(element)) else "area"
        size = (self.height, self.width)
        return neutral.Resize(key=self.key, size=size, method=method).map_element(
            element
        )
