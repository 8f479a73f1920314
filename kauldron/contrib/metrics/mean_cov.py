"""Mean and covariance of vectors, merged exactly."""

from __future__ import annotations

from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron.metrics.averages import as_real
from kauldron.metrics.state import EMPTY, MetricT, State, to_host


@flax.struct.dataclass(kw_only=True)
class MeanCov(State[MetricT]):
    """Weighted mean and covariance of vectors.

    Attributes:
      mean: Mean so far, `n`.
      scatter: Sum of `w (x - mean) (x - mean)ᵀ`, `n n`.
      weight: Sum of the weights.
      ddof: What is subtracted from the weight when dividing by it.

    Example:
      >>> samples = np.array([[0.0, 0.0], [2.0, 4.0]])
      >>> mean, cov = MeanCov.from_samples(samples).compute()
      >>> mean.tolist(), cov.tolist()
      ([1.0, 2.0], [[1.0, 2.0], [2.0, 4.0]])
    """

    mean: Any = EMPTY
    scatter: Any = EMPTY
    weight: Any = EMPTY
    ddof: int = flax.struct.field(pytree_node=False, default=0)

    @classmethod
    def empty(cls) -> Self:
        return cls()

    @classmethod
    def from_samples(cls, samples: Any, fweights: Any = None, ddof: int = 0) -> Self:
        """Return the state of some samples.

        Args:
          samples: Vectors, `b n`.
          fweights: How often each counts, `b`.
          ddof: 0 for the covariance of the samples, 1 for the unbiased estimate.
        """
        samples = as_real(samples)
        if samples.ndim != 2:
            raise ValueError(f"MeanCov: samples must be `b n`, not {samples.shape}.")
        if fweights is None:
            fweights = jnp.ones(samples.shape[:1], samples.dtype)
        weights = jnp.asarray(fweights, samples.dtype)
        if weights.shape != samples.shape[:1]:
            raise ValueError(
                f"MeanCov: weights of shape {weights.shape} do not fit samples of shape"
                f" {samples.shape}."
            )
        weight = weights.sum()
        mean = weights @ samples / jnp.where(weight == 0, 1, weight)
        centered = samples - mean
        scatter = (centered * weights[:, None]).T @ centered
        return cls(mean=mean, scatter=scatter, weight=weight, ddof=ddof)

    def merge(self, other: Self) -> Self:
        if self.weight is EMPTY or other.weight is EMPTY:
            return other if self.weight is EMPTY else self
        if self.ddof != other.ddof:
            raise ValueError(
                f"Cannot merge MeanCov: ddof is {self.ddof} in one and {other.ddof} in"
                " the other."
            )
        weight = self.weight + other.weight
        share = other.weight / jnp.where(weight == 0, 1, weight)
        difference = other.mean - self.mean
        spread = jnp.outer(difference, difference) * (self.weight * share)
        return self.replace(
            mean=self.mean + difference * share,
            scatter=self.scatter + other.scatter + spread,
            weight=weight,
        )

    def finalize(self) -> Self:
        return to_host(self)

    def compute(self) -> tuple[Any, Any]:
        """Mean and covariance; NaN where there are not enough samples."""
        xp = jnp if isinstance(self.weight, jax.Array) else np
        freedom = self.weight - self.ddof
        divisor = xp.where(freedom > 0, freedom, xp.nan)
        mean = xp.where(self.weight > 0, self.mean, xp.nan)
        return mean, self.scatter / divisor
