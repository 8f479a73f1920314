"""Resizing images, with NumPy, jax or TensorFlow.

Along each axis, a matrix says how much each input pixel counts for each output pixel.
Pixels are unit intervals: pixel i of n covers `[i/n, (i+1)/n]` of the axis, so an
output pixel k has its centre at `(k + 0.5) * n_in / n_out - 0.5` in input pixels.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kauldron.data.transforms.fields import ElementWiseTransform
from kauldron.data.transforms.values import (
    ArrayTransform,
    array_module,
    as_images,
    cast,
    is_integer,
    is_jax,
    is_tf,
    tf,
)
from kauldron.errors import did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(ArrayTransform):
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
        `"AUTO"` is `nearest` for integers and `area` for floats.
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
            is_auto = str(self.method).upper() == _AUTO
            method = _AUTO if is_auto else as_method(self.method)
            object.__setattr__(self, "method", method)

    def _map_array(self, array: Any, num_batch_axes: int) -> Any:
        array = as_images(array, self, num_batch_axes)
        method = self.method
        if method in (None, _AUTO):
            for_floats = "area" if method == _AUTO or is_tf(array) else "bilinear"
            method = "nearest" if is_integer(array) else for_floats
        if is_tf(array):
            return _resize_tensor(array, self, method)
        return resize(
            array, self._new_size(*array.shape[-3:-1]), method, self.antialias
        )

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the result for an input of this size."""
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
        raise ValueError(
            f"Cannot resize an image of shape {tuple(array.shape)}: expected (..., h, w, c),"
            " none of them 0."
        )
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
            weigh = _weigh_jax if is_jax(array) else _weigh
            resized = weigh(resized, (old, new, method, antialias, compute), axis)
    return cast(resized, dtype)


def _resize_nearest(array: Any, size: tuple[int, int]) -> Any:
    xnp = array_module(array)
    for axis in (-3, -2):
        old, new = array.shape[axis], size[axis + 3]
        if old != new:
            array = xnp.take(array, nearest_indices(old, new), axis=axis)
    return array


def _weigh_jax(array: Any, kind: tuple[Any, ...], axis: int) -> Any:
    """Multiply the axis (-3 or -2) of `(..., h, w, c)` by a weight matrix."""
    import jax.numpy as jnp

    axes = "nh,...hwc->...nwc" if axis == -3 else "nw,...hwc->...hnc"
    return jnp.einsum(axes, weight_matrix(*kind), array, precision="highest")


# Linear algebra libraries start threads for products larger than this. Beside other work
# that only costs time; and the last bits could depend on how many threads there are.
_MAX_PRODUCT = 1 << 18


def _weigh(array: np.ndarray, kind: tuple[Any, ...], axis: int) -> np.ndarray:
    """As `_weigh_jax`, in small products that leave out the zeros of the matrix."""
    if axis == -2:
        return np.swapaxes(_weigh(np.swapaxes(array, -3, -2), kind, -3), -3, -2)
    *lead, _, width, channels = array.shape
    rows = np.ascontiguousarray(array).reshape(*array.shape[:-2], -1)
    result = np.empty((*lead, kind[1], rows.shape[-1]), rows.dtype)
    for new, old, weights in weight_bands(*kind):
        step = max(1, _MAX_PRODUCT // weights.size)
        for start in range(0, rows.shape[-1], step):
            columns = slice(start, start + step)
            part = rows[..., old, columns]
            np.matmul(weights, part, out=result[..., new, columns])
    return result.reshape(*lead, -1, width, channels)


def as_size(size: Any, argument: str) -> tuple[int, int]:
    """Return height and width in pixels, at least one each."""
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
        object.__setattr__(self, "method", self._resize.method)

    @functools.cached_property
    def _resize(self) -> Resize:
        return Resize(key=self.key, min_size=self.smaller_size, method=self.method)

    def map_element(self, element: Any) -> Any:
        return self._resize.map_element(element)

    def map_element_batch(self, elements: Any) -> Any:
        return self._resize.map_element_batch(elements)


def _resize_tensor(tensor: Any, transform: Resize, method: str) -> Any:
    *lead, height, width, channels = _sizes(tensor)
    size = _new_tensor_size(transform, height, width)
    images = tf.reshape(tensor, [-1, height, width, channels])
    if tensor.dtype == tf.bool:
        images = tf.cast(images, tf.uint8)
    resized = tf.image.resize(images, size, method, antialias=transform.antialias)
    is_widened = is_integer(tensor) and method != "nearest"
    dtype = tf.float32 if is_widened else tensor.dtype
    resized = tf.cast(tf.reshape(resized, [*lead, size[0], size[1], channels]), dtype)
    return tf.ensure_shape(
        resized, [*tensor.shape[:-3], *_static(size), tensor.shape[-1]]
    )


def _sizes(tensor: Any) -> list[Any]:
    """Return the sizes as far as they are known, otherwise scalar tensors."""
    dynamic = tf.shape(tensor)
    return [
        dynamic[axis] if size is None else size
        for axis, size in enumerate(tensor.shape)
    ]


def _new_tensor_size(transform: Resize, height: Any, width: Any) -> Sequence[Any]:
    if transform.size or (isinstance(height, int) and isinstance(width, int)):
        return transform._new_size(height, width)
    edges = tf.cast(tf.stack([height, width]), tf.float64)
    if transform.min_size is not None:
        ratio = transform.min_size / tf.reduce_min(edges)
    else:
        assert transform.max_size is not None
        ratio = transform.max_size / tf.reduce_max(edges)
    return tf.unstack(tf.maximum(1, tf.cast(tf.round(edges * ratio), tf.int32)))


def _static(sizes: Sequence[Any]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in sizes]


# ----------------------------------------------------------------------------
# Methods and weights
# ----------------------------------------------------------------------------


_AUTO = "AUTO"
METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area")

_ALIASES = {
    "linear": "bilinear",
    "trilinear": "bilinear",
    "triangle": "bilinear",
    "cubic": "bicubic",
    "tricubic": "bicubic",
}


def as_method(method: str) -> str:
    """Return the method under its first name."""
    name = _ALIASES.get(str(method).lower(), str(method).lower())
    if name not in METHODS:
        raise ValueError(
            f"method={method!r}: expected one of {', '.join(METHODS)}."
            f"{did_you_mean(method, METHODS)}"
        )
    return name


@functools.lru_cache(maxsize=512)
def nearest_indices(size: int, new_size: int) -> np.ndarray:
    """Return the input pixel that each output pixel copies.

    >>> nearest_indices(2, 4)
    array([0, 0, 1, 1])
    """
    # In integers: a centre that falls exactly between two pixels goes to the second,
    # whereas in floats rounding would decide (and does, in `jax.image.resize`).
    indices = (2 * np.arange(new_size) + 1) * size // (2 * new_size)
    indices.flags.writeable = False
    return indices


@functools.lru_cache(maxsize=512)
def weight_matrix(
    size: int, new_size: int, method: str, antialias: bool, dtype: np.dtype
) -> np.ndarray:
    """Return a matrix of shape `(new_size, size)` whose rows sum to one."""
    if method == "area":
        weights = _overlaps(size, new_size)
    else:
        weights = _kernel_values(size, new_size, _KERNELS[method], antialias)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    weights = weights.astype(dtype)
    weights.flags.writeable = False
    return weights


_ROWS_OF_A_BAND = 16


@functools.lru_cache(maxsize=512)
def weight_bands(
    size: int, new_size: int, method: str, antialias: bool, dtype: np.dtype
) -> list[tuple[slice, slice, np.ndarray]]:
    """Return the weight matrix in pieces: new rows, the old rows they need, weights."""
    whole = weight_matrix(size, new_size, method, antialias, dtype)
    bands = []
    for start in range(0, new_size, _ROWS_OF_A_BAND):
        rows = whole[start : start + _ROWS_OF_A_BAND]
        used = np.flatnonzero(rows.any(axis=0))
        old = slice(used[0], used[-1] + 1) if len(used) else slice(0, 1)
        weights = np.ascontiguousarray(rows[:, old])
        weights.flags.writeable = False
        bands.append((slice(start, start + len(rows)), old, weights))
    return bands


def _kernel_values(
    size: int,
    new_size: int,
    kernel: Callable[[np.ndarray], np.ndarray],
    antialias: bool,
) -> np.ndarray:
    step = size / new_size
    centers = (np.arange(new_size) + 0.5) * step - 0.5
    width = max(step, 1.0) if antialias else 1.0
    return kernel(np.abs(centers[:, None] - np.arange(size)[None, :]) / width)


def _overlaps(size: int, new_size: int) -> np.ndarray:
    edges = np.arange(new_size + 1) * (size / new_size)
    pixels = np.arange(size)
    upper = np.minimum(edges[1:, None], pixels[None, :] + 1)
    lower = np.maximum(edges[:-1, None], pixels[None, :])
    return np.maximum(upper - lower, 0.0)


# ----------------------------------------------------------------------------
# Kernels, as functions of the distance in pixels
# ----------------------------------------------------------------------------


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - x)


def _cubic(x: np.ndarray) -> np.ndarray:
    """R. G. Keys, "Cubic convolution interpolation for digital image processing"."""
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: np.ndarray, radius: float) -> np.ndarray:
    return np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


_KERNELS = {
    "bilinear": _triangle,
    "bicubic": _cubic,
    "lanczos3": functools.partial(_lanczos, radius=3.0),
    "lanczos5": functools.partial(_lanczos, radius=5.0),
}
