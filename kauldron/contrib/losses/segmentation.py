"""Losses for masks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.losses import Loss
from kauldron.metrics.averages import as_real


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class DiceLoss(Loss):
    """One minus the overlap of a predicted and a true mask.

    Attributes:
      preds: Logits of the masks, `*b h w c`.
      targets: True masks, 0 to 1, of the same shape.

    References:
      Milletari et al., V-Net (2016).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(
        self, preds: Float["*b h w c"], targets: Float["*b h w c"]
    ) -> Float["*b c"]:
        probs, targets = jax.nn.sigmoid(as_real(preds)), as_real(targets)
        overlap = jnp.sum(probs * targets, axis=(-3, -2))
        area = jnp.sum(probs, axis=(-3, -2)) + jnp.sum(targets, axis=(-3, -2))
        return 1 - (2 * overlap + 1) / (area + 1)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SigmoidFocalLoss(Loss):
    """Cross entropy in which what is already right counts less.

    Attributes:
      preds: Logits of any shape.
      targets: 0, 1 or a probability, of the same shape.
      alpha: Weight of positives, and one minus that of negatives; below 0 there is no
        such weight.
      gamma: How fast the weight falls with being right.

    References:
      Lin et al., Focal loss for dense object detection (2017).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    alpha: float = 0.5
    gamma: float = 2.0

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Array["*a"]) -> Float["*a"]:
        logits, targets = as_real(preds), as_real(targets)
        right = targets * jax.nn.log_sigmoid(logits)
        entropy = -right - (1 - targets) * jax.nn.log_sigmoid(-logits)
        probs = jax.nn.sigmoid(logits)
        wrong = 1 - (probs * targets + (1 - probs) * (1 - targets))
        values = entropy * wrong**self.gamma
        if self.alpha < 0:
            return values
        return values * (self.alpha * targets + (1 - self.alpha) * (1 - targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class WeightedL1(Loss):
    """Absolute error of visible elements, with less weight on the background.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      visible: Weights, such as 0 for what is hidden; broadcastable.
      bg_mask: Where the background is; broadcastable.
      ratio_value: Weight of the background.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    visible: kontext.Key | None = None
    bg_mask: kontext.Key | None = None
    ratio_value: float = 1.0

    @typechecked
    def get_values(
        self,
        preds: Float["*a"],
        targets: Float["*a"],
        visible: Array | None = None,
        bg_mask: Array | None = None,
    ) -> Float["*a"]:
        values = jnp.abs(as_real(preds) - as_real(targets))
        if visible is not None:
            values *= as_real(visible)
        if bg_mask is not None:
            values *= jnp.where(jnp.asarray(bg_mask) > 0, self.ratio_value, 1.0)
        return values
