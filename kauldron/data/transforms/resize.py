"""Change of the size of images."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np

from kauldron.data.transforms import resize_weights, tensorflow_forms
from kauldron.data.transforms.array_family import (
    array_module,
    as_array,
    is_integer,
    is_jax,
    is_tf,
)
from kauldron.data.transforms.cast import cast
from kauldron.data.transforms.element_wise import ElementWiseTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(ElementWiseTransform):
    """Resizes images and videos of shape `(..., h, w, c)`.

    Pixel centres are at half-integers and shrinking filters first, as in
    `jax.image.resize`. Exactly one of the three sizes must be given.

    Attributes:
      key: The field or fields to resize.
      size: The new `(h, w)`.
      min_size: The new size of the shorter edge; the other follows the aspect ratio.
      max_size: The new size of the longer edge; the other follows the aspect ratio.
      method: `nearest`, `bilinear`, `bicubic`, `lanczos3`, `lanczos5` or `area`. All but
        `nearest` turn integers into float32. The default is `nearest` for integers (they
        are often masks) and `bilinear` for floats (`area` for TensorFlow tensors).
      antialias: Whether to filter when shrinking.

    Example:
      >>> image = np.zeros((32, 48, 3), np.float32)
      >>> Resize(key="image", size=(16, 16)).map({"image": image})["image"].shape
      (16, 16, 3)
      >>> Resize(key="image", min_size=16).map({"image": image})["image"].shape
      (16, 24, 3)
    """

    size: tuple[int, int] | None = None
    min_size: int | None = None
    max_size: int | None = None
    method: str | None = None
    antialias: bool = True

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = {
            "size": self.size,
            "min_size": self.min_size,
            "max_size": self.max_size,
        }
        given = {name: value for name, value in sizes.items() if value is not None}
        if len(given) != 1:
            raise ValueError(
                f"{type(self).__name__}: give exactly one of size, min_size, max_size;"
                f" got {given or 'none'}."
            )
        if self.size is not None:
            object.__setattr__(self, "size", as_size(self.size, "size"))
        else:
            ((name, value),) = given.items()
            object.__setattr__(self, name, _as_edge(value, name))
        if self.method is not None:
            object.__setattr__(self, "method", resize_weights.as_method(self.method))

    def map_element(self, element: Any) -> Any:
        return self._resize(as_array(element), num_batch_axes=0)

    def map_element_batch(self, elements: Any) -> Any:
        return self._resize(as_array(elements), num_batch_axes=1)

    def _resize(self, array: Any, num_batch_axes: int) -> Any:
        shape = tuple(array.shape[num_batch_axes:])
        if len(shape) < 3:
            raise ValueError(
                f"{type(self).__name__} expects (..., h, w, c), got shape {shape}; add a"
                " channel with kd.data.Rearrange(pattern='h w -> h w 1')."
            )
        if is_tf(array):
            return tensorflow_forms.resize(array, self)
        method = self.method or ("nearest" if is_integer(array) else "bilinear")
        return resize(array, self.new_size(*shape[-3:-1]), method, self.antialias)

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result for an input of this height and width."""
        if self.size is not None:
            return self.size
        if self.min_size is not None:
            ratio = self.min_size / min(height, width)
        else:
            assert self.max_size is not None
            ratio = self.max_size / max(height, width)
        return max(1, round(height * ratio)), max(1, round(width * ratio))


def resize(
    array: Any, size: tuple[int, int], method: str, antialias: bool = True
) -> Any:
    """Resize NumPy or jax images `(..., h, w, c)` to `(..., *size, c)`."""
    if 0 in array.shape:
        raise ValueError(f"Cannot resize an image of shape {tuple(array.shape)}.")
    if method == "nearest":
        return _resize_nearest(array, size)
    compute = np.dtype(np.float64 if array.dtype == np.float64 else np.float32)
    dtype = compute if is_integer(array) else np.dtype(array.dtype)
    resized = cast(array, compute)
    # Each step is one matrix product per image, so that an image gives the same bits
    # alone and in a batch. The axis that shrinks most goes first.
    axes = [-3, -2]
    axes.sort(key=lambda axis: size[axis + 3] / array.shape[axis])
    for axis in axes:
        old, new = array.shape[axis], size[axis + 3]
        if old != new:
            weights = resize_weights.weight_matrix(old, new, method, antialias, compute)
            resized = _weigh(resized, weights, axis)
    return cast(resized, dtype)


def _resize_nearest(array: Any, size: tuple[int, int]) -> Any:
    xnp = array_module(array)
    for axis in (-3, -2):
        old, new = array.shape[axis], size[axis + 3]
        if old != new:
            indices = resize_weights.nearest_indices(old, new)
            array = xnp.take(array, indices, axis=axis)
    return array


def _weigh(array: Any, weights: np.ndarray, axis: int) -> Any:
    """Multiply the axis (-3 or -2) of `(..., h, w, c)` by a matrix."""
    if is_jax(array):
        import jax.numpy as jnp

        axes = "nh,...hwc->...nwc" if axis == -3 else "nw,...hwc->...hnc"
        return jnp.einsum(axes, weights, array, precision="highest")
    if axis == -2:
        return np.swapaxes(_weigh(np.swapaxes(array, -3, -2), weights, -3), -3, -2)
    rows = np.ascontiguousarray(array).reshape(*array.shape[:-2], -1)
    return np.matmul(weights, rows).reshape(*array.shape[:-3], -1, *array.shape[-2:])


def as_size(size: Any, argument: str) -> tuple[int, int]:
    """Height and width in pixels, at least one each."""
    try:
        height, width = size
    except (TypeError, ValueError):
        raise ValueError(f"{argument}={size!r}: expected (height, width).") from None
    return _as_edge(height, argument), _as_edge(width, argument)


def _as_edge(value: Any, argument: str) -> int:
    try:
        edge = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}={value!r}: expected whole pixels.") from None
    if edge < 1:
        raise ValueError(f"{argument}={value!r}: expected at least one pixel.")
    return edge
