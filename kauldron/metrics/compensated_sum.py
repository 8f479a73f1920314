"""Sums that keep the digits float32 would drop.

A sum is held as two floats: `high`, the rounded value, and `low`, what the rounding
left out. Adding one to sixteen million loses nothing, and the additions can be traced.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def add(high_a: Any, low_a: Any, high_b: Any, low_b: Any) -> tuple[Any, Any]:
    """Add two sums.

    Args:
      high_a: Rounded value of the first sum, any shape.
      low_a: What its rounding left out.
      high_b: Rounded value of the second sum.
      low_b: What its rounding left out.

    Returns:
      `high` and `low` of the result: numpy if all four are, else jax arrays.

    Example:
      >>> one, zero = np.float32(1), np.float32(0)
      >>> high, low = add(np.float32(2**24), zero, one, zero)
      >>> int(high), int(low)
      (16777216, 1)
    """
    parts = (high_a, low_a, high_b, low_b)
    if any(isinstance(part, jax.Array) for part in parts):
        return _add_on_device(*parts)
    with np.errstate(invalid="ignore"):
        return _add(np, *parts)


def _add(xp: Any, high_a: Any, low_a: Any, high_b: Any, low_b: Any) -> tuple[Any, Any]:
    high, error = _two_sum(xp, high_a, high_b)
    return _two_sum(xp, high, error + (low_a + low_b))


@jax.jit
def _add_on_device(high_a: Any, low_a: Any, high_b: Any, low_b: Any) -> Any:
    return _add(jnp, high_a, low_a, high_b, low_b)


def _two_sum(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """`a + b` and its rounding error (D. Knuth, TAOCP 2, section 4.2.2)."""
    total = a + b
    b_kept = total - a
    error = (a - (total - b_kept)) + (b - b_kept)
    return total, xp.where(xp.isfinite(total), error, 0).astype(total.dtype)


def count_pair(count: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """A whole number, static or traced int32 below 2**30, as `high` and `low`."""
    high = jnp.asarray(count, dtype)
    if isinstance(count, int):
        kept = int(np.asarray(count, dtype))
    else:
        kept = high.astype(jnp.int32)
    return high, jnp.asarray(count - kept, dtype)


def total_of(high: Any, low: Any) -> Any:
    """The sum as one number: in float64 on the host, in its own dtype when traced."""
    if isinstance(high, jax.core.Tracer) or isinstance(low, jax.core.Tracer):
        return high + low
    with np.errstate(invalid="ignore"):
        return np.asarray(high, np.float64) + np.asarray(low, np.float64)


def ratio(numerator: Any, denominator: Any) -> Any:
    """`numerator / denominator`, and 0 where the denominator is 0."""
    xp = jnp if isinstance(numerator + denominator, jax.Array) else np
    is_empty = denominator == 0
    value = xp.where(is_empty, 0.0, numerator / xp.where(is_empty, 1, denominator))
    return value[()]  # a numpy scalar is a Python float; a 0-d array is not
