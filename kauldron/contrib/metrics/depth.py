"""How well distances are predicted."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Metric
from kauldron.metrics.averages import as_real


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class MeanAbsoluteRelativeError(Metric):
    """Mean of `|pred - target| / (target + epsilon)`.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      mask: Weights; dimensions missing at the end are filled in.
      epsilon: Keeps the quotient finite.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    epsilon: float = 1e-6

    State = AverageState

    @typechecked
    def get_state(
        self, preds: Float["*a"], targets: Float["*a"], mask: Array | None = None
    ) -> AverageState:
        preds, targets = as_real(preds), as_real(targets)
        errors = jnp.abs(preds - targets) / (targets + self.epsilon)
        return AverageState.from_values(errors, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Delta1(Metric):
    """Share of predictions within a factor of the target.

    Attributes:
      preds: Predictions of any shape; below 0 they count as 0.
      targets: Targets of the same shape.
      mask: Weights; dimensions missing at the end are filled in.
      threshold: The factor.
      epsilon: Keeps the quotient finite.
      denormalize: Whether to multiply both by `depth_std` and add `depth_mean` first.
      depth_mean: Mean that was subtracted.
      depth_std: Standard deviation that was divided by.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    threshold: float = 1.25
    epsilon: float = 1e-6
    denormalize: bool = False
    depth_mean: float = 0.0
    depth_std: float = 1.0

    State = AverageState

    @typechecked
    def get_state(
        self, preds: Float["*a"], targets: Float["*a"], mask: Array | None = None
    ) -> AverageState:
        preds, targets = as_real(preds), as_real(targets)
        if self.denormalize:
            preds, targets = (
                x * self.depth_std + self.depth_mean for x in (preds, targets)
            )
        preds = jnp.maximum(preds, 0)
        larger, smaller = jnp.maximum(preds, targets), jnp.minimum(preds, targets)
        is_near = larger / (smaller + self.epsilon) < self.threshold
        return AverageState.from_values(is_near, mask=mask)
