"""Masks and weights of averaged values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def align_mask(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """Give a mask the rank of the values, aligned from the left.

    Args:
      mask: Weights whose leading dimension is that of the values.
      shape: Shape of the values.

    Returns:
      The mask with size-1 dimensions appended, broadcastable to `shape`.

    Raises:
      ValueError: If it does not fit, with both shapes.
    """
    mask = jnp.asarray(mask)
    aligned = mask.shape + (1,) * (len(shape) - mask.ndim)
    fits = (
        len(aligned) == len(shape)
        and aligned[:1] == shape[:1]
        and all(m in (1, n) for m, n in zip(aligned, shape))
    )
    if not fits:
        raise ValueError(
            f"The mask of shape {mask.shape} does not fit the values of shape {shape}:"
            " its first dimension must be that of the values, the following ones equal"
            " or 1; missing ones at the end are filled in."
        )
    return mask.reshape(aligned)


def as_real(values: Any) -> jax.Array:
    """Values as float32, the precision sums are made in; float64 stays (with x64)."""
    values = jnp.asarray(values)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise TypeError(f"Cannot average complex values (dtype {values.dtype}).")
    return values.astype(jnp.result_type(jnp.float32, _floating(values.dtype)))


def _floating(dtype: Any) -> Any:
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32


def weighted(values: jax.Array, mask: jax.Array) -> jax.Array:
    """`values * mask`, exactly 0 where the mask is 0, whatever the value there."""
    return jnp.where(mask == 0, 0, values) * mask.astype(values.dtype)
