"""The state of a loss: a weighted mean over all elements of all batches."""

from __future__ import annotations

import functools
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.ktyping import Float
from kauldron.metrics import compensated_sum
from kauldron.metrics.collected import to_host
from kauldron.metrics.masks import as_real, weighted
from kauldron.metrics.state import MetricT, State

NORMALIZE_BY = ("mask", "values")
_ZERO = np.zeros((), np.float32)


@flax.struct.dataclass
class AllReduceMean(State[MetricT]):
    """Mean of loss values.

    Attributes:
      value: Weighted sum of the values.
      count: What to divide it by.
    """

    value: Float[""]
    count: Float[""]
    # What float32 dropped from the two sums; see `compensated_sum`.
    value_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)
    count_rest: Float[""] = flax.struct.field(default=_ZERO[()], repr=False)

    @classmethod
    def empty(cls) -> Self:
        return cls(value=_ZERO, count=_ZERO, value_rest=_ZERO, count_rest=_ZERO)

    @classmethod
    def from_values(
        cls,
        values: Any,
        mask: Any = None,
        weight: Any = 1.0,
        normalize_by: str = "mask",
    ) -> Self:
        """The state of one batch of values.

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
        return cls(*_sums(values, mask, weight, normalize_by))

    def merge(self, other: Self) -> Self:
        if not isinstance(other, AllReduceMean):
            raise TypeError(
                f"Cannot merge {type(self).__qualname__} with"
                f" {type(other).__qualname__}."
            )
        value, value_rest = compensated_sum.add(
            self.value, self.value_rest, other.value, other.value_rest
        )
        count, count_rest = compensated_sum.add(
            self.count, self.count_rest, other.count, other.count_rest
        )
        return self.replace(
            value=value, count=count, value_rest=value_rest, count_rest=count_rest
        )

    def finalize(self) -> Self:
        return to_host(self)

    def compute(self) -> Any:
        """Weighted mean; 0 if everything was masked."""
        value = compensated_sum.total_of(self.value, self.value_rest)
        count = compensated_sum.total_of(self.count, self.count_rest)
        maximum = jnp.maximum if isinstance(count, jax.Array) else np.maximum
        return value / maximum(count, 1e-8)


@functools.partial(jax.jit, static_argnums=3)
def _sums(values: Any, mask: Any, weight: Any, normalize_by: str) -> Any:
    """Value, count, and what their rounding dropped."""
    values = as_real(values)
    count, rest = compensated_sum.count_pair(values.size, values.dtype)
    if mask is not None:
        mask = broadcast_mask(mask, values.shape).astype(values.dtype)
        values = weighted(values, mask)
        if normalize_by == "mask":
            count, rest = mask.sum(), jnp.zeros_like(rest)
    value = values.sum() * weight
    return value, count, jnp.zeros_like(value), rest


def check_normalize_by(normalize_by: str) -> None:
    """Raise `ValueError` unless it is one of the known ways."""
    if normalize_by not in NORMALIZE_BY:
        raise ValueError(
            f"normalize_by must be one of {NORMALIZE_BY}, not {normalize_by!r}."
        )


def broadcast_mask(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """The mask in the shape of the values.

    Raises:
      ValueError: If it does not fit, with both shapes.
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
