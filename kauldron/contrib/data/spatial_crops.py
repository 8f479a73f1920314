"""Crops of images and videos."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron.contrib.data.image_arrays import as_images
from kauldron.contrib.data.tensor_fields import takes_tensors
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.resize import as_size
from kauldron.data.transforms.values import array_module


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreeSpatialCrop(ElementWiseTransform):
    """Three crops along the longer edge of images and videos: begin, middle, end.

    Attributes:
      key: The field or fields, `(..., h, w, c)`.
      size: Edge of the square crops, or their `(height, width)`.

    Example:
      >>> import numpy as np
      >>> video = {"video": np.zeros((4, 6, 9, 3))}
      >>> ThreeSpatialCrop(key="video", size=6).map(video)["video"].shape
      (3, 4, 6, 6, 3)
    """

    size: int | tuple[int, int]

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        size = (self.size,) * 2 if isinstance(self.size, int) else self.size
        object.__setattr__(self, "size", as_size(size, "size"))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._crop(as_images(element, self), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        images = as_images(elements, self, num_batch_axes=1)
        return self._crop(images, num_batch_axes=1)

    def _crop(self, images: Any, num_batch_axes: int) -> Any:
        height, width = self.size  # pyright: ignore[reportGeneralTypeIssues]
        free = (images.shape[-3] - height, images.shape[-2] - width)
        if min(free) < 0:
            shape = tuple(images.shape[num_batch_axes:])
            raise ValueError(
                f"ThreeSpatialCrop(size={self.size}): the images are smaller, their"
                f" shape is {shape}."
            )
        is_wide = images.shape[-2] >= images.shape[-3]
        crops = []
        for third in range(3):
            top, left = (
                extent * third // 2 if is_longer else extent // 2
                for extent, is_longer in zip(free, (not is_wide, is_wide))
            )
            crops.append(images[..., top : top + height, left : left + width, :])
        return array_module(images).stack(crops, axis=num_batch_axes)
