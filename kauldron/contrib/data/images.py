"""Transforms of images and videos: padding, crops, and random changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import (
    NumpyTransform,
    check_positive,
    check_probability,
    takes_tensor_fields,
    takes_tensors,
)
from kauldron.data.transforms import ElementWiseRandomTransform, ElementWiseTransform
from kauldron.data.transforms.resize import as_method, resize
from kauldron.data.transforms.values import (
    array_module,
    as_array,
    as_images,
    is_jax,
    round_and_cast,
)

#
# Padding
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class PadImage(NumpyTransform):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        pad = (self.pad,) * 2 if isinstance(self.pad, int) else tuple(self.pad)
        if len(pad) != 2 or not all(isinstance(p, int) and p >= 0 for p in pad):
            raise ValueError(
                f"{type(self).__name__}(pad={self.pad!r}): expected a number of pixels,"
                " or a pair (vertical, horizontal), none below 0."
            )
        object.__setattr__(self, "pad", pad)

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        images = as_images(array, self, num_batch_axes)
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
class PadAxisToFixedSize(NumpyTransform):
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

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
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
class ThreeSpatialCrop(NumpyTransform):
    """Three square crops along the longer edge of a video: begin, middle, end.

    Attributes:
      key: The field or fields, `(t, h, w, c)`.
      shape: Edge of the crops.

    Example:
      >>> import numpy as np
      >>> video = {"video": np.zeros((4, 6, 9, 3))}
      >>> ThreeSpatialCrop(key="video", shape=6).map(video)["video"].shape
      (12, 6, 6, 3)
    """

    shape: int

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        shape, size = tuple(array.shape[num_batch_axes:]), self.shape
        if len(shape) != 4 or not 0 < size <= min(shape[1:3]):
            raise ValueError(
                f"ThreeSpatialCrop(shape={size}): expected a larger video (t, h, w, c),"
                f" got the shape {shape}."
            )
        free = np.array(shape[1:3]) - size
        starts = np.stack([-(-free // 2)] * 3)
        axis = 0 if shape[1] > shape[2] else 1
        starts[[0, 2], axis] = 0, free[axis]
        crops = [
            array[..., top : top + size, left : left + size, :] for top, left in starts
        ]
        return array_module(array).concatenate(crops, axis=num_batch_axes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxImageResize(ElementWiseTransform):
    """`jax.image.resize` of a field of any rank.

    Attributes:
      key: The field or fields.
      shape: The whole shape of a record's field afterwards.
      method: As in `jax.image.resize`.

    Example:
      >>> import numpy as np
      >>> resize = JaxImageResize(key="x", shape=(2, 1))
      >>> resize.map({"x": np.arange(4.0)[:, None]})["x"].ravel().round(3)
      array([0.714, 2.286], dtype=float32)
    """

    shape: tuple[int, ...]
    method: str = "bilinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", tuple(self.shape))

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        import jax

        array = as_array(element)
        resized = jax.image.resize(array, self.shape, self.method)
        return resized if is_jax(array) else np.asarray(resized)


#
# Random changes
#


@takes_tensor_fields("key", keeps_shapes=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlipLeftRightVideo(ElementWiseRandomTransform):
    """Mirrors videos `(..., h, w, c)` left to right, one coin for all frames.

    Attributes:
      key: The field or fields to flip, all alike.
    """

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        video = as_images(element, self)
        return video if rng.integers(2) else video[..., ::-1, :]


@takes_tensor_fields("key", free_axes=(-3, -2))
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomResize(ElementWiseRandomTransform):
    """Scales height and width of images `(..., h, w, c)`, each by its own random factor.

    The sizes differ from record to record: crop or pad before the batch.

    Attributes:
      key: The field or fields, all alike when they have the same size.
      prob: Probability of resizing at all.
      min_scale_factor: The smallest factor.
      max_scale_factor: The largest factor.
      method: As in `kd.data.Resize`.
      antialias: Whether to filter when shrinking.

    Example:
      >>> resize = RandomResize(key="image", prob=1.0)
      >>> image = np.zeros((100, 100, 3), np.uint8)
      >>> resize({"image": image}, np.random.default_rng(0))["image"].shape
      (90, 81, 3)
    """

    prob: float = 0.8
    min_scale_factor: float = 0.8
    max_scale_factor: float = 1.2
    method: str = "bilinear"
    antialias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range(self, "min_scale_factor", "max_scale_factor")
        check_probability(self, "prob")
        object.__setattr__(self, "method", as_method(self.method))

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        images = as_images(element, self).astype(np.float32)
        if rng.random() >= self.prob:
            return images
        low, high = self.min_scale_factor, self.max_scale_factor
        height, width = (
            max(1, int(edge * rng.uniform(low, high))) for edge in images.shape[-3:-1]
        )
        return resize(images, (height, width), self.method, self.antialias)


@takes_tensor_fields("key", keeps_shapes=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianBlur(ElementWiseRandomTransform):
    """Blurs images `(..., h, w, c)` by a Gaussian of random width. The dtype stays.

    Attributes:
      key: The field or fields, all alike.
      apply_prob: Probability of blurring at all.
      sigma_min: The smallest standard deviation, in pixels.
      sigma_max: The largest one.
      kernel_size: Pixels that the Gaussian covers; an even number grows by one.
    """

    apply_prob: float = 0.5
    sigma_min: float = 0.1
    sigma_max: float = 2.0
    kernel_size: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range(self, "sigma_min", "sigma_max")
        check_probability(self, "apply_prob")
        check_positive(self, "kernel_size")

    def random_map_element(self, element: Any, rng: np.random.Generator) -> Any:
        images = as_images(element, self)
        if rng.random() >= self.apply_prob:
            return images
        sigma = rng.uniform(self.sigma_min, self.sigma_max)
        radius = self.kernel_size // 2
        weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
        weights /= weights.sum()
        blurred = np.asarray(images, np.float32)
        for axis in (-2, -3):
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


def _check_range(transform: Any, low: str, high: str) -> None:
    if not 0 < getattr(transform, low) <= getattr(transform, high) < np.inf:
        raise ValueError(
            f"{type(transform).__name__}({low}={getattr(transform, low)},"
            f" {high}={getattr(transform, high)}): expected numbers above 0, the larger"
            " one last."
        )
