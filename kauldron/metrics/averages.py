"""Weighted means that are exact over any number of batches: of metrics and of losses.

`AverageState` and `AllReduceMean` are both a sum and a count. They differ in how a mask
is aligned with the values, and a loss has a weight.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.ktyping import Float
from kauldron.metrics.state import MetricT, State, to_host

_ZERO = np.zeros((), np.float32)
_LARGEST_EXACT_COUNT = 2**30
NORMALIZE_BY = ("mask", "values")


@flax.struct.dataclass
class _Mean(State[MetricT]):
    """A sum and a count, each with what float32 dropped from it (see `add_sums`).

    Subclasses have four fields: the sum, under a name of its own, `count`, and the rest
    of each.
    """

    _SUM: ClassVar[str]

    @classmethod
    def empty(cls) -> Self:
        return cls(**dict.fromkeys(cls._names(), _ZERO))

    def merge(self, other: Self) -> Self:
        if not isinstance(other, _Mean) or self._names() != other._names():
            raise TypeError(
                f"Cannot merge {type(self).__qualname__} with"
                f" {type(other).__qualname__}."
            )
        total, count, total_rest, count_rest = self._parts()
        others = other._parts()
        if np.shape(total) != np.shape(others[0]):
            raise ValueError(
                "Cannot merge averages whose totals have different shapes:"
                f" {np.shape(total)} and {np.shape(others[0])}."
            )
        total, total_rest = add_sums(total, total_rest, others[0], others[2])
        count, count_rest = add_sums(count, count_rest, others[1], others[3])
        merged = (total, count, total_rest, count_rest)
        return self.replace(**dict(zip(self._names(), merged)))

    def finalize(self) -> Self:
        return to_host(self)

    @classmethod
    def _names(cls) -> list[str]:
        return [cls._SUM, "count", f"{cls._SUM}_rest", "count_rest"]

    def _parts(self) -> list[Any]:
        return [getattr(self, name) for name in self._names()]

    def _total_and_count(self) -> tuple[Any, Any]:
        total, count, total_rest, count_rest = self._parts()
        return total_of(total, total_rest), total_of(count, count_rest)


@flax.struct.dataclass
class AverageState(_Mean[MetricT]):
    """(Weighted) mean of a scalar quantity.

    Attributes:
      total: Sum of the weighted values.
      count: Sum of the weights.

    Example:
      >>> first = AverageState.from_values(np.array([1.0, 2.0]))
      >>> second = AverageState.from_values(
      ...     np.array([6.0, np.nan]), mask=np.array([1, 0])
      ... )
      >>> float(first.merge(second).compute())
      3.0
    """

    _SUM = "total"

    total: Float[""]
    count: Float[""]
    total_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)
    count_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)

    @classmethod
    def from_values(cls, values: Any, *, mask: Any = None) -> Self:
        """Return the state of one batch of values.

        Args:
          values: Array of any real dtype and shape; it is summed in float32 (float64
            stays with x64). A scalar counts as one value.
          mask: Weights, bool or numbers: the leading dimension is that of `values`,
            further ones are equal or 1, missing ones are appended. A value whose
            weight is 0 is ignored, even if it is not finite.

        Raises:
          ValueError: If the mask does not fit, with both shapes.
        """
        return cls(*_sums(values, mask, fit=_align_or_scalar))

    def compute(self) -> Any:
        """Return the weighted mean; 0 if nothing was counted."""
        return ratio(*self._total_and_count())


@flax.struct.dataclass
class AllReduceMean(_Mean[MetricT]):
    """Mean of loss values: the state of losses.

    Attributes:
      value: Weighted sum of the values.
      count: What to divide it by.
    """

    _SUM = "value"

    value: Float[""]
    count: Float[""]
    value_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)
    count_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)

    @classmethod
    def from_values(
        cls,
        values: Any,
        mask: Any = None,
        weight: Any = 1.0,
        normalize_by: str = "mask",
    ) -> Self:
        """Return the state of one batch of values.

        Args:
          values: Loss of each element; summed in float32 (float64 stays with x64).
          mask: Weights, broadcastable to the values; if that is not possible, missing
            dimensions are added at the end: `b` fits `b 1` and `b t`. A value whose
            weight is 0 is ignored, even if it is not finite.
          weight: Weight of the whole loss.
          normalize_by: Divide by the sum of the `"mask"`, or by the number of
            `"values"`.

        Raises:
          ValueError: If the mask does not fit, with both shapes.
        """
        check_normalize_by(normalize_by)
        return cls(
            *_sums(values, mask, weight, fit=broadcast_mask, normalize_by=normalize_by)
        )

    def compute(self) -> Any:
        """Return the weighted mean; 0 if everything was masked."""
        value, count = self._total_and_count()
        maximum = jnp.maximum if isinstance(count, jax.Array) else np.maximum
        return value / maximum(count, 1e-8)


def check_normalize_by(normalize_by: str) -> None:
    """Raise `ValueError` unless it is one of the known ways."""
    if normalize_by not in NORMALIZE_BY:
        raise ValueError(
            f"normalize_by must be one of {NORMALIZE_BY}, not {normalize_by!r}."
        )


@functools.partial(jax.jit, static_argnames=("fit", "normalize_by"))
def _sums(
    values: Any,
    mask: Any,
    weight: Any = None,
    *,
    fit: Callable[[Any, tuple[int, ...]], jax.Array],
    normalize_by: str = "mask",
) -> tuple[jax.Array, ...]:
    """Return total, count, and what their rounding dropped."""
    values = as_real(values)
    count, rest = count_pair(values.size, values.dtype)
    if mask is not None:
        mask = fit(mask, values.shape)
        if normalize_by == "mask":
            count, rest = _count(mask, values)
        values = weighted(values, mask)
    total = values.sum()
    if weight is not None:
        total = total * weight
    return total, count, jnp.zeros_like(total), rest


def _count(mask: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the sum of the mask broadcast to the values; exact for a bool mask."""
    copies = values.size // max(mask.size, 1)
    if mask.dtype == bool and values.size < _LARGEST_EXACT_COUNT:
        count = mask.sum(dtype=jnp.int32) * copies
        return count_pair(count, values.dtype)
    count = mask.astype(values.dtype).sum() * copies
    return count, jnp.zeros_like(count)


#
# Sums that keep the digits float32 would drop
#
# A sum is held as two floats: `high`, the rounded value, and `low`, what the rounding
# left out. Adding one to sixteen million loses nothing, and the additions can be traced.
#


def add_sums(high_a: Any, low_a: Any, high_b: Any, low_b: Any) -> tuple[Any, Any]:
    """Add two sums.

    Return `high` and `low` of the result: numpy if all four are, else jax arrays.

    Example:
      >>> one, zero = np.float32(1), np.float32(0)
      >>> high, low = add_sums(np.float32(2**24), zero, one, zero)
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
    """Return `a + b` and its rounding error (Knuth, TAOCP 2, section 4.2.2)."""
    total = a + b
    b_kept = total - a
    error = (a - (total - b_kept)) + (b - b_kept)
    return total, xp.where(xp.isfinite(total), error, 0).astype(total.dtype)


def count_pair(count: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Split a whole number (traced: an int32 below 2**30) into `high` and `low`."""
    high = jnp.asarray(count, dtype)
    if isinstance(count, int):
        kept = int(np.asarray(count, dtype))
    else:
        kept = high.astype(jnp.int32)
    return high, jnp.asarray(count - kept, dtype)


def total_of(high: Any, low: Any) -> Any:
    """Return the sum as one number: float64 on the host, its own dtype if traced."""
    if isinstance(high, jax.core.Tracer) or isinstance(low, jax.core.Tracer):
        return high + low
    with np.errstate(invalid="ignore"):
        return np.asarray(high, np.float64) + np.asarray(low, np.float64)


def ratio(numerator: Any, denominator: Any) -> Any:
    """Return `numerator / denominator`, and 0 where the denominator is 0."""
    xp = jnp if isinstance(numerator + denominator, jax.Array) else np
    is_empty = denominator == 0
    value = xp.where(is_empty, 0.0, numerator / xp.where(is_empty, 1, denominator))
    return value[()]  # a numpy scalar is a Python float; a 0-d array is not


#
# Masks and weights
#


def align_mask(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """Give a mask the rank of the values, aligned from the left.

    Size-1 dimensions are appended, so that it can be broadcast to `shape`. Raise
    `ValueError` with both shapes if it does not fit.
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


def _align_or_scalar(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """Like `align_mask`; a scalar is one value, with one weight."""
    return align_mask(mask, shape) if shape else align_mask(jnp.atleast_1d(mask), (1,))


def broadcast_mask(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """Give a mask the shape of loss values: as numpy does, or aligned from the left.

    Raise `ValueError` with both shapes if it does not fit.
    """
    mask = jnp.asarray(mask)
    for aligned in (mask.shape, mask.shape + (1,) * (len(shape) - mask.ndim)):
        if _broadcasts_to(aligned, shape):
            return jnp.broadcast_to(mask.reshape(aligned), shape)
    raise ValueError(
        f"The mask of shape {mask.shape} does not fit the loss values of shape {shape}:"
        " it must be broadcastable to them, or have their first dimensions."
    )


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return jnp.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def as_real(values: Any) -> jax.Array:
    """Return values as float32, in which sums are made; float64 stays (with x64)."""
    values = jnp.asarray(values)
    if jnp.issubdtype(values.dtype, jnp.complexfloating):
        raise TypeError(f"Cannot average complex values (dtype {values.dtype}).")
    is_float = jnp.issubdtype(values.dtype, jnp.floating)
    dtype = jnp.promote_types(values.dtype, jnp.float32) if is_float else jnp.float32
    return values.astype(dtype)


def weighted(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Return `values * mask`, exactly 0 where the mask is 0, even for NaN."""
    return jnp.where(mask == 0, 0, values) * mask.astype(values.dtype)
