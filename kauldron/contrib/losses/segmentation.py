"""Losses for masks, and for what is partly hidden."""

from __future__ import annotations

import dataclasses
from typing import Any

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
      preds: Logits of the masks, `*b h w m`.
      targets: True masks, 0 to 1, of the same shape and any dtype.
      num_objects: A number to divide by; 1 if not set.

    References:
      Milletari et al., V-Net (2016).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    num_objects: kontext.Key | None = None

    @typechecked
    def get_values(
        self,
        preds: Float["*b h w m"],
        targets: Array["*b h w m"],
        num_objects: Any = 1,
    ) -> Float["*b h w m"]:
        probs, targets = jax.nn.sigmoid(as_real(preds)), as_real(targets)
        overlap, area = (
            jnp.sum(pixels, axis=(-3, -2), keepdims=True)
            for pixels in (probs * targets, probs + targets)
        )
        values = (1 - (2 * overlap + 1) / (area + 1)) / num_objects
        return jnp.broadcast_to(values, probs.shape)  # masks have a height and a width


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SigmoidFocalLoss(Loss):
    """Cross entropy in which what is already right counts less.

    Attributes:
      preds: Logits of any shape.
      targets: 0, 1 or a probability, of the same shape.
      alpha: Weight of positives; negatives get `1 - alpha`. A negative `alpha` turns
        this weighting off.
      gamma: How fast the weight of an element falls as its prediction improves.
      num_objects: A number to divide by; 1 if not set.

    References:
      Lin et al., Focal loss for dense object detection (2017).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    alpha: float = 0.5
    gamma: float = 2.0
    num_objects: kontext.Key | None = None

    @typechecked
    def get_values(
        self, preds: Float["*a"], targets: Array["*a"], num_objects: Any = 1
    ) -> Float["*a"]:
        logits, targets = as_real(preds), as_real(targets)
        right = targets * jax.nn.log_sigmoid(logits)
        entropy = -right - (1 - targets) * jax.nn.log_sigmoid(-logits)
        probs = jax.nn.sigmoid(logits)
        wrong = 1 - (probs * targets + (1 - probs) * (1 - targets))
        values = entropy * wrong**self.gamma / num_objects
        if self.alpha < 0:
            return values
        return values * (self.alpha * targets + (1 - self.alpha) * (1 - targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class IoULoss(Loss):
    """Error of predicted overlaps of masks (intersection over union).

    Attributes:
      preds: Predicted masks, `*b m h w`; what is above 0 belongs to the mask.
      targets: True masks, likewise.
      pred_ious: Predicted overlaps, `*b m`.
      num_objects: A number to divide by; 1 if not set.
      use_l1_loss: Whether the error is absolute; else it is squared.
      loss_on_multimask: Ignored: the loss is the same for one mask and for many.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    pred_ious: kontext.Key = kontext.REQUIRED
    num_objects: kontext.Key | None = None
    use_l1_loss: bool = True
    loss_on_multimask: bool = False

    @typechecked
    def get_values(
        self,
        preds: Array["*b m h w"],
        targets: Array["*b m h w"],
        pred_ious: Float["*b m"],
        num_objects: Any = 1,
    ) -> Float["*b m"]:
        pred, true = jnp.asarray(preds) > 0, jnp.asarray(targets) > 0
        both, any_ = (jnp.sum(x, axis=(-2, -1)) for x in (pred & true, pred | true))
        errors = as_real(pred_ious) - both / jnp.maximum(any_, 1)
        values = jnp.abs(errors) if self.use_l1_loss else jnp.square(errors)
        return values / num_objects


_RATIO_TYPES = ("constant", "dynamic")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class WeightedL1(Loss):
    """Absolute error with less weight on the background.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      visible: 1 for what is visible, 0 for what is hidden; broadcastable.
      bg_mask: 1 for the **foreground**, 0 for the background; broadcastable.
      ratio_value: Weight of the background.
      ratio_type: `"constant"`, or `"dynamic"` for the ratio of foreground to background
        instead of `ratio_value`.
      use_bg_ratio_for_occluded: Whether what is hidden counts as background.
      mask_occluded: Whether what is hidden does not count at all.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    visible: kontext.Key | None = None
    bg_mask: kontext.Key | None = None
    ratio_value: float = 1.0
    ratio_type: str = "constant"
    use_bg_ratio_for_occluded: bool = False
    mask_occluded: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratio_type not in _RATIO_TYPES:
            raise ValueError(
                f"ratio_type must be one of {_RATIO_TYPES}, not {self.ratio_type!r}."
            )

    @typechecked
    def get_values(
        self,
        preds: Float["*a"],
        targets: Float["*a"],
        visible: Array | None = None,
        bg_mask: Array | None = None,
    ) -> Float["*a"]:
        values = jnp.abs(as_real(preds) - as_real(targets))
        visible, foreground = (
            jnp.ones_like(values) if mask is None else as_real(mask)
            for mask in (visible, bg_mask)
        )
        if self.mask_occluded:
            values *= visible
        if self.use_bg_ratio_for_occluded:
            foreground = foreground * visible
        ratio = self.ratio_value
        if self.ratio_type == "dynamic":
            ratio = foreground.sum() / ((1 - foreground).sum() + 1e-6)
            ratio = jnp.maximum(ratio, 1e-5)
        return values * (foreground + (1 - foreground) * ratio)
