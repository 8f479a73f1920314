"""Statistics of tensors."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import compensated_sum
from kauldron.metrics.average_state import AverageState
from kauldron.metrics.collected import to_host
from kauldron.metrics.masks import align_mask, as_real, weighted
from kauldron.metrics.metric import Metric
from kauldron.metrics.norm import Norm as Norm
from kauldron.metrics.state import State as BaseState


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SingleDimension(Metric):
    """Mean of one entry of the last dimension.

    Attributes:
      tensor: Values of any shape.
      index: Which entry; `None` takes all of them.
      mask: Weights; dimensions missing at the end are filled in.
    """

    tensor: kontext.Key = kontext.REQUIRED
    index: int | None = 0
    mask: kontext.Key | None = None

    State = AverageState

    @typechecked
    def get_state(
        self, tensor: Float["*any"], mask: Array | None = None
    ) -> AverageState:
        if self.index is None:
            return AverageState.from_values(tensor, mask=mask)
        size = tensor.shape[-1] if tensor.ndim else 0
        if not -size <= self.index < size:
            raise ValueError(
                f"SingleDimension: index {self.index} is out of range for a tensor of"
                f" shape {tensor.shape}."
            )
        return AverageState.from_values(tensor[..., self.index], mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Std(Metric):
    """Population standard deviation of all values; 0 if there are none.

    Attributes:
      values: Values of shape `*b n`.
      mask: Weights, `*b 1`.

    References:
      Chan, Golub, LeVeque, Algorithms for computing the sample variance (1983).
    """

    values: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(BaseState["Std"]):
        """Sum of weights, mean and sum of squared deviations.

        Each number is a pair: the rounded value, and what the rounding left out.
        """

        count: Any
        mean: Any
        squares: Any

        @classmethod
        def empty(cls) -> Self:
            zero = np.zeros((2,), np.float32)
            return cls(count=zero, mean=zero, squares=zero)

        def merge(self, other: Self) -> Self:
            merged = _merge_moments(
                (self.count, self.mean, self.squares),
                (other.count, other.mean, other.squares),
            )
            return self.replace(**dict(zip(("count", "mean", "squares"), merged)))

        def finalize(self) -> Self:
            return to_host(self)

        def compute(self) -> Any:
            count, squares = (
                compensated_sum.total_of(pair[..., 0], pair[..., 1])
                for pair in (self.count, self.squares)
            )
            return compensated_sum.ratio(squares, count) ** 0.5

    @typechecked
    def get_state(self, values: Float["*b n"], mask: Array | None = None) -> Std.State:
        count, mean, squares = _moments(values, mask)
        return self.State(count=count, mean=mean, squares=squares)


Moments = tuple[Any, Any, Any]


@jax.jit
def _moments(values: Any, mask: Any) -> Moments:
    """Count, mean and squares of one batch, as (rounded, rest) pairs."""
    values = as_real(values)
    weights = jnp.ones((1,) * values.ndim, values.dtype)
    if mask is not None:
        weights = align_mask(mask, values.shape).astype(values.dtype)
    weights = jnp.broadcast_to(weights, values.shape)
    count = weights.sum()
    share = jnp.where(count == 0, 0, 1 / jnp.where(count == 0, 1, count))
    mean = weighted(values, weights).sum() * share
    # The mean is rounded; what it missed shows in the mean of the deviations.
    deviations = jnp.where(weights == 0, 0, values - mean)
    mean_rest = (deviations * weights).sum() * share
    squares = jnp.maximum((deviations**2 * weights).sum() - count * mean_rest**2, 0)
    zero = jnp.zeros_like(count)
    return (
        jnp.stack([count, zero]),
        jnp.stack([mean, mean_rest]),
        jnp.stack([squares, zero]),
    )


@jax.jit
def _merge_moments(left: Moments, right: Moments) -> Moments:
    """Count, mean and squares of both, as (rounded, rest) pairs."""
    (count_a, mean_a, squares_a), (count_b, mean_b, squares_b) = left, right
    count = _add(count_a, count_b)
    share = count_b[0] / jnp.where(count[0] == 0, 1, count[0])
    difference = _add(mean_b, -mean_a)
    mean = _add(mean_a, difference * share)
    between = difference.sum() ** 2 * count_a[0] * share
    squares = _add(_add(squares_a, squares_b), jnp.stack([between, 0 * between]))
    return count, mean, squares


def _add(left: Any, right: Any) -> jax.Array:
    return jnp.stack(compensated_sum.add(left[0], left[1], right[0], right[1]))
