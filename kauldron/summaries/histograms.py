"""Histograms of the values of tensors."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, typechecked
from kauldron.metrics.averages import align_mask, as_real
from kauldron.metrics.metric import Metric
from kauldron.metrics.state import (
    EMPTY,
    Collected,
    check_not_traced,
    is_traced,
    pieces_of,
    start_copy,
    to_host,
)
from kauldron.metrics.state import State as BaseState


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Values of which a writer makes a histogram.

    Attributes:
      tensor: The values, one dimension.
      num_buckets: How many buckets to make.
    """

    tensor: np.ndarray
    num_buckets: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class HistogramSummary(Metric):
    """Histogram of all values of a tensor.

    Attributes:
      tensor: Values of any shape.
      num_buckets: Number of buckets.
      max_values: How many values to keep at most, evenly spaced among all of them;
        `None` keeps all.
      mask: Which values count; dimensions missing at the end are filled in.
    """

    tensor: kontext.Key = kontext.REQUIRED
    num_buckets: int = 30
    max_values: int | None = 1_000_000
    mask: kontext.Key | None = None

    def __post_init__(self) -> None:
        for name in ("num_buckets", "max_values"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(
                    f"HistogramSummary.{name} must be at least 1, not {value}."
                )

    @flax.struct.dataclass(kw_only=True)
    class State(BaseState["HistogramSummary"]):
        """Every `stride`-th of the values seen so far.

        Attributes:
          values: The kept values, in one dimension.
          num_seen: Number of values they were taken from.
          num_kept: Number of kept values.
          stride: Distance of the kept values, a power of two.
          is_masked: Whether values that do not count are there, as NaN.
        """

        values: Any = EMPTY
        num_seen: int = flax.struct.field(pytree_node=False, default=0)
        num_kept: int = flax.struct.field(pytree_node=False, default=0)
        stride: int = flax.struct.field(pytree_node=False, default=1)
        is_masked: bool = flax.struct.field(pytree_node=False, default=False)

        @classmethod
        def empty(cls) -> Self:
            return cls()

        def merge(self, other: Self) -> Self:
            check_not_traced(self, self.values, other.values)
            if self.values is EMPTY or other.values is EMPTY:
                filled = other if self.values is EMPTY else self
                return filled.replace(parent=self.parent)._limit()
            stride = max(self.stride, other.stride)
            left, right = self._thin(stride), other._thin(stride, skip=self.num_seen)
            start_copy(left.values)
            start_copy(right.values)
            merged = left.replace(
                values=Collected((left.values, right.values)),
                num_seen=left.num_seen + right.num_seen,
                num_kept=left.num_kept + right.num_kept,
                is_masked=left.is_masked or right.is_masked,
            )
            return merged._limit()

        def _limit(self) -> Self:
            """Double the stride until not too many values are kept."""
            limit = None if self.parent is EMPTY else self.parent.max_values
            stride, num_kept = self.stride, self.num_kept
            while limit is not None and num_kept > limit:
                stride, num_kept = 2 * stride, -(-num_kept // 2)
            return self._thin(stride)

        def _thin(self, stride: int, skip: int = 0) -> Self:
            """Keep the values at multiples of `stride`, after `skip` others."""
            if stride == self.stride:
                return self
            start = (-skip) % stride // self.stride
            values = self.values
            if isinstance(values, Collected):
                values = np.concatenate(to_host(pieces_of(values)))
            values = values[start :: stride // self.stride]
            return self.replace(values=values, stride=stride, num_kept=values.shape[0])

        def finalize(self) -> Self:
            if self.values is EMPTY or is_traced(self.values):
                return self
            return self.replace(values=np.concatenate(to_host(pieces_of(self.values))))

        def compute(self) -> Histogram:
            if not self.num_seen:
                raise ValueError(
                    f"{self.parent!r}: there are no values to make a histogram of."
                )
            values = self.values
            if self.is_masked:
                values = values[~np.isnan(values)]
            return Histogram(values, self.parent.num_buckets)

    @typechecked
    def get_state(
        self, tensor: Array["*any"], mask: Array | None = None
    ) -> HistogramSummary.State:
        if mask is not None:
            counts = align_mask(mask, tensor.shape) > 0
            tensor = jnp.where(counts, as_real(tensor), jnp.nan)
        values = jnp.ravel(tensor)
        state = self.State(
            values=values,
            num_seen=values.size,
            num_kept=values.size,
            is_masked=mask is not None,
            parent=self,
        )
        return state._limit()
