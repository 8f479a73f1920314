"""Random crops of random size and aspect ratio."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from kauldron.data.transforms import resize_weights
from kauldron.data.transforms.array_family import as_array
from kauldron.data.transforms.element_wise import ElementWiseRandomTransform
from kauldron.data.transforms.linear_map import round_and_cast
from kauldron.data.transforms.resize import as_size, resize

_ASPECT_RATIOS = (3 / 4, 4 / 3)
_MAX_ATTEMPTS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class InceptionCrop(ElementWiseRandomTransform):
    """Cuts a random box out of images `(..., h, w, c)` and resizes it.

    The box covers a random part of the area and has an aspect ratio between 3/4 and
    4/3, as in C. Szegedy et al., "Going deeper with convolutions". The dtype stays.

    Attributes:
      key: The field or fields to crop, all alike when they have the same size.
      resize_size: The `(h, w)` of the result; `None` leaves the box as it is.
      resize_method: As in `Resize`.
      area_range: Smallest and largest part of the area that the box covers.

    Example:
      >>> crop = InceptionCrop(key="image", resize_size=(8, 8))
      >>> record = {"image": np.zeros((32, 24, 3), np.uint8)}
      >>> crop.random_map(record, np.random.default_rng(0))["image"].shape
      (8, 8, 3)
    """

    resize_size: tuple[int, int] | None = None
    resize_method: str = "bilinear"
    area_range: tuple[float, float] = (0.05, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize_size is not None:
            size = as_size(self.resize_size, "resize_size")
            object.__setattr__(self, "resize_size", size)
        method = resize_weights.as_method(self.resize_method)
        object.__setattr__(self, "resize_method", method)
        object.__setattr__(self, "area_range", as_area_range(self.area_range))

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        image = as_array(element)
        if len(image.shape) < 3:
            raise ValueError(
                f"InceptionCrop expects (..., h, w, c), got shape {tuple(image.shape)}."
            )
        rows, columns = self._draw_box(image.shape[-3], image.shape[-2], rng)
        box = image[..., rows, columns, :]
        if self.resize_size is None:
            return box
        resized = resize(box, self.resize_size, self.resize_method)
        return round_and_cast(resized, np.dtype(image.dtype))

    def _draw_box(
        self, height: int, width: int, rng: np.random.Generator
    ) -> tuple[slice, slice]:
        """A random box that fits; the whole image when none was found."""
        low, high = self.area_range
        for _ in range(_MAX_ATTEMPTS):
            area = rng.uniform(low, high) * height * width
            ratio = rng.uniform(*_ASPECT_RATIOS)
            box_width = round(math.sqrt(area * ratio))
            box_height = round(math.sqrt(area / ratio))
            if 0 < box_width <= width and 0 < box_height <= height:
                top = int(rng.integers(0, height - box_height + 1))
                left = int(rng.integers(0, width - box_width + 1))
                return slice(top, top + box_height), slice(left, left + box_width)
        return slice(None), slice(None)


def as_area_range(area_range: Any) -> tuple[float, float]:
    """Two parts of the area, in order.

    Raises:
      ValueError: They are not.
    """
    try:
        low, high = (float(part) for part in area_range)
    except (TypeError, ValueError):
        low = high = 0.0
    if not 0 < low <= high <= 1:
        raise ValueError(
            f"InceptionCrop(area_range={area_range!r}): expected two parts of the area,"
            " 0 < low <= high <= 1."
        )
    return low, high
