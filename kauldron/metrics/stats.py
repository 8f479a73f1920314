"""Statistics of tensors: means, standard deviations, norms."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics.averages import (
    AverageState,
    add_sums,
    align_mask,
    as_real,
    ratio,
    total_of,
    weighted,
)
from kauldron.metrics.metric import Metric
from kauldron.metrics.state import State as BaseState
from kauldron.metrics.state import to_host


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
                total_of(pair[..., 0], pair[..., 1])
                for pair in (self.count, self.squares)
            )
            return ratio(squares, count) ** 0.5

    @typechecked
    def get_state(self, values: Float["*b n"], mask: Array | None = None) -> Std.State:
        count, mean, squares = _moments(values, mask)
        return self.State(count=count, mean=mean, squares=squares)


Moments = tuple[Any, Any, Any]


@jax.jit
def _moments(values: Any, mask: Any) -> Moments:
    """Return count, mean and squares of one batch, as (rounded, rest) pairs."""
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
    """Merge count, mean and squares, which are (rounded, rest) pairs."""
    (count_a, mean_a, squares_a), (count_b, mean_b, squares_b) = left, right
    count = _add(count_a, count_b)
    share = count_b[0] / jnp.where(count[0] == 0, 1, count[0])
    difference = _add(mean_b, -mean_a)
    mean = _add(mean_a, difference * share)
    between = difference.sum() ** 2 * count_a[0] * share
    squares = _add(_add(squares_a, squares_b), jnp.stack([between, 0 * between]))
    return count, mean, squares


def _add(left: Any, right: Any) -> jax.Array:
    return jnp.stack(add_sums(left[0], left[1], right[0], right[1]))


#
# Norms of tensors and of whole trees
#


_AGGREGATIONS = (None, "average", "concat")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Norm(Metric):
    """Norm along an axis, averaged over the rest.

    Attributes:
      tensor: Values of any shape.
      mask: Weights of the norms.
      axis: An axis (vector norm), a pair (matrix norm), or `None` for the norm of all
        values.
      ord: Which norm, as in `numpy.linalg.norm`.
      aggregation_type: What is made of many norms. `"average"` (also `None`): their
        mean, over dimensions, tree leaves and batches. `"concat"`: the norm of
        everything concatenated, over dimensions and tree leaves; then the mean over
        batches.

    Example:
      >>> import numpy as np
      >>> float(Norm()(tensor=np.array([[3.0, 4.0], [0.0, 1.0]])))
      3.0
    """

    tensor: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    axis: int | tuple[int, int] | None = -1
    ord: int | float | str | None = None
    aggregation_type: str | None = None

    def __post_init__(self) -> None:
        if self.aggregation_type not in _AGGREGATIONS:
            raise ValueError(
                f"aggregation_type must be one of {_AGGREGATIONS}, not"
                f" {self.aggregation_type!r}."
            )
        if self.aggregation_type == "concat":
            _exponent(self.ord)

    @flax.struct.dataclass
    class State(AverageState["Norm"]):
        """Mean of the norms."""

    @typechecked
    def get_state(self, tensor: Float["*any"], mask: Array | None = None) -> Norm.State:
        if self.aggregation_type == "concat":
            return self.State.from_values(self._whole_norm(tensor, mask))
        norms = self._norms(tensor)
        return self.State.from_values(norms, mask=_as_array_mask(mask, norms))

    @functools.partial(jax.jit, static_argnums=0)
    def _whole_norm(self, tensor: Any, mask: Any) -> Any:
        """Return the norm of everything that is not masked out."""
        norms = self._norms(tensor)
        if mask is not None:
            mask = align_mask(_as_array_mask(mask, norms), norms.shape)
            norms = weighted(norms, mask)
        return _concatenated_norm(norms.ravel(), _exponent(self.ord))

    @functools.partial(jax.jit, static_argnums=0)
    def _norms(self, tensor: Any) -> Any:
        """Return norms with the reduced axes kept."""
        tensor = as_real(tensor)
        if self.axis is None or (tensor.ndim == 0 and isinstance(self.axis, int)):
            norm = jnp.linalg.norm(tensor.ravel(), ord=self.ord)
            return norm.reshape((1,) * tensor.ndim)
        return jnp.linalg.norm(tensor, ord=self.ord, axis=self.axis, keepdims=True)

    def merge_leaf_states(self, states: Sequence[Any]) -> BaseState:
        if self.aggregation_type != "concat":
            self._warn_about_averaging()
            return super().merge_leaf_states(states)
        if not states:
            return self.empty()
        norms = jnp.stack([state.total for state in states])  # each is one norm
        norm = _concatenated_norm(norms, _exponent(self.ord))
        return self.State.from_values(norm).replace(parent=self)

    def _warn_about_averaging(self) -> None:
        if self.axis is not None or self.aggregation_type is not None:
            return
        if "_has_warned" in vars(self):
            return
        object.__setattr__(self, "_has_warned", True)
        warnings.warn(
            "Norm(axis=None) over the leaves of a tree: the average of the norms is"
            ' taken. Set aggregation_type="concat" for the norm of the whole tree, or'
            ' aggregation_type="average" to keep the average without this warning.',
            UserWarning,
            stacklevel=2,
        )


def _as_array_mask(mask: Any, norms: Any) -> Any:
    """Make a single weight fit a single norm."""
    if mask is not None and mask.ndim == 0 and norms.size == 1:
        return mask.reshape(norms.shape)
    return mask


def _exponent(order: Any) -> float:
    """Return the `p` of a norm that can be put together from parts."""
    exponent = 2.0 if order is None or order == "fro" else order
    is_number = isinstance(exponent, int | float)
    if (
        not is_number
        or math.isnan(exponent)
        or (exponent <= 0 and exponent != -math.inf)
    ):
        raise ValueError(
            f'Norm: ord={order!r} cannot be used with aggregation_type="concat": it must'
            " be positive, inf or -inf."
        )
    return exponent


@functools.partial(jax.jit, static_argnums=1)
def _concatenated_norm(norms: Any, exponent: float) -> Any:
    """`(Σ normᵖ)^(1/p)`, scaled so that no power overflows."""
    if math.isinf(exponent):
        return norms.max() if exponent > 0 else norms.min()
    largest = norms.max(initial=0.0)
    scale = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1.0)
    return scale * ((norms / scale) ** exponent).sum() ** (1 / exponent)
