"""How much each input pixel counts for each output pixel, along one axis.

Pixels are unit intervals: pixel i of n covers `[i/n, (i+1)/n]` of the axis, so an
output pixel k has its centre at `(k + 0.5) * n_in / n_out - 0.5` in input pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5", "area")

_ALIASES = {
    "linear": "bilinear",
    "trilinear": "bilinear",
    "triangle": "bilinear",
    "cubic": "bicubic",
    "tricubic": "bicubic",
}


def as_method(method: str) -> str:
    """The method under its first name.

    Raises:
      ValueError: There is no such method.
    """
    name = _ALIASES.get(str(method).lower(), str(method).lower())
    if name not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(METHODS)}.")
    return name


@functools.lru_cache(maxsize=512)
def nearest_indices(size: int, new_size: int) -> np.ndarray:
    """The input pixel that each output pixel copies.

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
    """Matrix of shape `(new_size, size)` whose rows sum to one."""
    if method == "area":
        weights = _overlaps(size, new_size)
    else:
        weights = _kernel_values(size, new_size, _KERNELS[method], antialias)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    weights = weights.astype(dtype)
    weights.flags.writeable = False
    return weights


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
