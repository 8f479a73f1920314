"""Images, changed at random."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.contrib.data.image_arrays import as_images
from kauldron.data.transforms import ElementWiseRandomTransform
from kauldron.data.transforms.resize import as_method, resize
from kauldron.data.transforms.values import is_integer, round_and_cast


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
    """Along one axis; beyond the border the last pixel repeats."""
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
