"""Transforms of images and videos: padding, crops, and random changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import as_images, takes_tensors
from kauldron.data.transforms import ElementWiseRandomTransform, ElementWiseTransform
from kauldron.data.transforms.resize import as_method, as_size, resize
from kauldron.data.transforms.values import (
    array_module,
    as_array,
    is_integer,
    round_and_cast,
)

#
# Padding
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImage(ElementWiseTransform):
    """Pads images `(..., h, w, c)` on all four sides.

    Attributes:
      key: The field or fields.
      pad: Pixels on each side; or those above and below, and left and right, as
        `(vertical, horizontal)`.
      mode: As in `np.pad`: `"constant"` (zeros), `"edge"`, `"reflect"`, ...

    Example:
      >>> import numpy as np
      >>> PadImage(key="x", pad=(1, 2)).map({"x": np.zeros((4, 4, 3))})["x"].shape
      (6, 8, 3)
    """

    pad: int | tuple[int, int]
    mode: str = "constant"

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        pad = (self.pad,) * 2 if isinstance(self.pad, int) else tuple(self.pad)
        if len(pad) != 2 or not all(isinstance(p, int) and p >= 0 for p in pad):
            raise ValueError(
                f"{type(self).__name__}(pad={self.pad!r}): expected pixels, or pixels"
                " (vertical, horizontal), from 0 on."
            )
        object.__setattr__(self, "pad", pad)

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._pad(as_images(element, self))

    def map_element_batch(self, elements: Any) -> Any:
        return self._pad(as_images(elements, self, num_batch_axes=1))

    def _pad(self, images: Any) -> Any:
        vertical, horizontal = self.pad  # pyright: ignore[reportGeneralTypeIssues]
        lead = [(0, 0)] * (len(images.shape) - 3)
        widths = [*lead, (vertical, vertical), (horizontal, horizontal), (0, 0)]
        return array_module(images).pad(images, widths, mode=self.mode)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImageEdgeVal(PadImage):
    """Pads images with the values at their edges.

    Attributes:
      key: The field or fields.
      pad: Pixels on each side, or `(vertical, horizontal)`.
    """

    mode: str = dataclasses.field(default="edge", init=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadAxisToFixedSize(ElementWiseTransform):
    """Fills an axis up to a size.

    Attributes:
      key: The field or fields.
      size: Of the axis afterwards. A longer axis is an error.
      axis: Which one, of a record.
      value: What to fill with.

    Example:
      >>> PadAxisToFixedSize(key="x", size=4, axis=0).map({"x": [7, 8]})
      {'x': array([ 7,  8, -1, -1])}
    """

    size: int
    axis: int
    value: float = -1

    traceable = True

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        return self._pad(as_array(element), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._pad(as_array(elements), num_batch_axes=1)

    def _pad(self, array: Any, num_batch_axes: int) -> Any:
        shape = tuple(array.shape[num_batch_axes:])
        if not -len(shape) <= self.axis < len(shape):
            raise IndexError(f"PadAxisToFixedSize(axis={self.axis}): shape is {shape}.")
        axis = self.axis % len(shape)
        missing = self.size - shape[axis]
        if missing < 0:
            raise ValueError(
                f"PadAxisToFixedSize(size={self.size}, axis={self.axis}): the field is"
                f" longer, its shape is {shape}."
            )
        widths = [(0, 0)] * len(array.shape)
        widths[axis + num_batch_axes] = (0, missing)
        return array_module(array).pad(array, widths, constant_values=self.value)


#
# Crops
#


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


#
# Random changes
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlipLeftRightVideo(ElementWiseRandomTransform):
    """Mirrors videos `(..., h, w, c)` left to right, one coin for all frames.

    Attributes:
      key: The field or fields to flip, all alike.
    """

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        video = as_images(element, self)
        return video if rng.integers(2) else video[..., ::-1, :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomResize(ElementWiseRandomTransform):
    """Scales height and width of images `(..., h, w, c)`, each by its own random factor.

    The sizes differ from record to record: crop or pad before the batch.

    Attributes:
      key: The field or fields, all alike when they have the same size.
      scale_range: Smallest and largest factor.
      probability: Of resizing at all.
      method: As in `kd.data.Resize`, and with the same default.

    Example:
      >>> resize = RandomResize(key="image", scale_range=(0.5, 2))
      >>> image = np.zeros((100, 100, 3), np.uint8)
      >>> resize({"image": image}, np.random.default_rng(0))["image"].shape
      (90, 56, 3)
    """

    scale_range: tuple[float, float] = (0.8, 1.2)
    probability: float = 1.0
    method: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = _as_range(self.scale_range, "scale_range", self)
        object.__setattr__(self, "scale_range", (low, high))
        _check_probability(self)
        if self.method is not None:
            object.__setattr__(self, "method", as_method(self.method))

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        images = as_images(element, self)
        if rng.random() >= self.probability:
            return images
        height, width = (
            max(1, round(edge * rng.uniform(*self.scale_range)))
            for edge in images.shape[-3:-1]
        )
        method = self.method or ("nearest" if is_integer(images) else "bilinear")
        return resize(images, (height, width), method)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianBlur(ElementWiseRandomTransform):
    """Blurs images `(..., h, w, c)` by a Gaussian of random width. The dtype stays.

    Attributes:
      key: The field or fields, all alike.
      sigma_range: Smallest and largest standard deviation, in pixels.
      kernel_size: Pixels that the Gaussian covers, an odd number; `None` for three
        standard deviations to each side.
      probability: Of blurring at all.
    """

    sigma_range: tuple[float, float] = (0.1, 2.0)
    kernel_size: int | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = _as_range(self.sigma_range, "sigma_range", self)
        object.__setattr__(self, "sigma_range", (low, high))
        _check_probability(self)
        if self.kernel_size is not None and (
            self.kernel_size < 1 or self.kernel_size % 2 == 0
        ):
            raise ValueError(
                f"GaussianBlur(kernel_size={self.kernel_size}): expected an odd number."
            )

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        images = as_images(element, self)
        if rng.random() >= self.probability:
            return images
        sigma = rng.uniform(*self.sigma_range)
        radius = int(np.ceil(3 * sigma))
        if self.kernel_size is not None:
            radius = self.kernel_size // 2
        weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
        weights /= weights.sum()
        blurred = np.asarray(images, np.float32)
        for axis in (-3, -2):
            blurred = _convolve(blurred, weights.astype(np.float32), axis)
        return round_and_cast(blurred, np.dtype(images.dtype))


def _convolve(array: np.ndarray, weights: np.ndarray, axis: int) -> np.ndarray:
    """Convolve along one axis; beyond the border the last pixel repeats."""
    radius = len(weights) // 2
    widths = [(0, 0)] * array.ndim
    widths[axis] = (radius, radius)
    padded = np.moveaxis(np.pad(array, widths, mode="edge"), axis, 0)
    size = array.shape[axis]
    shifted = (weight * padded[i : i + size] for i, weight in enumerate(weights))
    return np.moveaxis(np.sum(list(shifted), axis=0), 0, axis)


def _as_range(ends: Any, argument: str, transform: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        low = high = 0.0
    if not 0 < low <= high < np.inf:
        raise ValueError(
            f"{type(transform).__name__}({argument}={ends!r}): expected two numbers,"
            " 0 < low <= high."
        )
    return low, high


def _check_probability(transform: Any) -> None:
    if not 0 <= transform.probability <= 1:
        raise ValueError(
            f"{type(transform).__name__}(probability={transform.probability}): expected"
            " a number from 0 to 1."
        )
