"""The weighted mean of a quantity, exact over any number of batches."""

from __future__ import annotations

from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.ktyping import Float
from kauldron.metrics import compensated_sum
from kauldron.metrics.collected import to_host
from kauldron.metrics.masks import align_mask, as_real, weighted
from kauldron.metrics.state import MetricT, State

_ZERO = np.zeros((), np.float32)
_LARGEST_EXACT_COUNT = 2**30


@flax.struct.dataclass
class AverageState(State[MetricT]):
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

    total: Float[""]
    count: Float[""]
    # What float32 dropped from the two sums; see `compensated_sum`.
    total_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)
    count_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)

    @classmethod
    def empty(cls) -> Self:
        return cls(total=_ZERO, count=_ZERO, total_rest=_ZERO, count_rest=_ZERO)

    @classmethod
    def from_values(cls, values: Any, *, mask: Any = None) -> Self:
        """The state of one batch of values.

        Args:
          values: Array of any real dtype and shape; it is summed in float32 (float64
            stays with x64). A scalar counts as one value.
          mask: Weights, bool or numbers: the leading dimension is that of `values`,
            further ones are equal or 1, missing ones are appended. A value whose
            weight is 0 is ignored, even if it is not finite.

        Raises:
          ValueError: If the mask does not fit, with both shapes.
        """
        return cls(*_sums(values, mask))

    def merge(self, other: Self) -> Self:
        if not isinstance(other, AverageState):
            raise TypeError(
                f"Cannot merge {type(self).__qualname__} with"
                f" {type(other).__qualname__}."
            )
        if np.shape(self.total) != np.shape(other.total):
            raise ValueError(
                "Cannot merge averages whose totals have different shapes:"
                f" {np.shape(self.total)} and {np.shape(other.total)}."
            )
        total, total_rest = compensated_sum.add(
            self.total, self.total_rest, other.total, other.total_rest
        )
        count, count_rest = compensated_sum.add(
            self.count, self.count_rest, other.count, other.count_rest
        )
        return self.replace(
            total=total, count=count, total_rest=total_rest, count_rest=count_rest
        )

    def finalize(self) -> Self:
        return to_host(self)

    def compute(self) -> Any:
        """Weighted mean; 0 if nothing was counted."""
        return compensated_sum.ratio(
            compensated_sum.total_of(self.total, self.total_rest),
            compensated_sum.total_of(self.count, self.count_rest),
        )


@jax.jit
def _sums(values: Any, mask: Any) -> tuple[jax.Array, ...]:
    """Total, count, and what their rounding dropped."""
    values = as_real(values)
    if values.ndim == 0:
        values = values[None]
        mask = None if mask is None else jnp.atleast_1d(mask)
    if mask is None:
        total = values.sum()
        count, rest = compensated_sum.count_pair(values.size, values.dtype)
    else:
        mask = align_mask(mask, values.shape)
        total = weighted(values, mask).sum()
        count, rest = _count(mask, values)
    return total, count, jnp.zeros_like(total), rest


def _count(mask: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of the mask broadcast to the values; counting a bool mask is exact."""
    copies = values.size // max(mask.size, 1)
    if mask.dtype == bool and values.size < _LARGEST_EXACT_COUNT:
        count = mask.sum(dtype=jnp.int32) * copies
        return compensated_sum.count_pair(count, values.dtype)
    count = mask.astype(values.dtype).sum() * copies
    return count, jnp.zeros_like(count)
