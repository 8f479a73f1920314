"""Images on their way into a summary: layout, value range, channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import einops
import jax
import jax.numpy as jnp
import numpy as np

FLATTEN = "... h w c -> (...) h w c"


def rearrange_images(
    images: Any, pattern: str | None, sizes: Mapping[str, int] | None, *, name: str
) -> Any:
    """Bring images to `n h w c` with an einops pattern.

    Args:
      images: Array of any rank.
      pattern: Pattern; by default leading dimensions are flattened.
      sizes: Sizes of named axes of the pattern.
      name: Who asks, for the error.

    Raises:
      ValueError: If the pattern does not fit, or the result has not four dimensions.
    """
    try:
        images = einops.rearrange(images, pattern or FLATTEN, **(sizes or {}))
    except einops.EinopsError as error:
        raise ValueError(
            f"{name}: cannot rearrange an array of shape {np.shape(images)} with"
            f" {pattern or FLATTEN!r}: {error}"
        ) from None
    if images.ndim != 4:
        raise ValueError(
            f"{name}: images must have the shape `n h w c`, but have {images.shape}"
            f" (rearrange={pattern!r})."
        )
    return images


def check_channels(images: Any, allowed: tuple[int, ...], *, name: str) -> None:
    """Raise `ValueError` unless the last dimension is one of the allowed sizes."""
    if images.shape[-1] not in allowed:
        expected = " or ".join(map(str, allowed))
        raise ValueError(
            f"{name}: images must have {expected} channels, but their shape is"
            f" {images.shape} (`n h w c`). Arrays without an axis for channels need a"
            ' pattern such as rearrange="n h w -> n h w 1".'
        )


def as_float(images: Any) -> jax.Array:
    """uint8 images as floats in [0, 1]; floats stay as they are."""
    images = jnp.asarray(images)
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise TypeError(f"Images must be float or uint8, not {images.dtype}.")
    return images


def rescale(images: jax.Array, vrange: tuple[float, float] | None) -> jax.Array:
    """Clip to the value range and map it to [0, 1]."""
    if vrange is None:
        return images
    low, high = vrange
    images = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    return (jnp.clip(images, low, high) - low) / (high - low)


def to_unit_range(images: np.ndarray) -> np.ndarray:
    """Float32 images clipped to [0, 1]; what is not a number becomes 0."""
    images = np.asarray(images, np.float32)
    return np.clip(np.nan_to_num(images, nan=0.0), 0.0, 1.0)
