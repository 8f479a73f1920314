"""Errors of predicted numbers, vectors, depths and images."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Metric, Psnr
from kauldron.metrics.averages import as_real
from kauldron.summaries.colors import apply_colormap

_MODES = ("trad", "average_all", "per_sample_sqrt")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RootMeanSquaredError(Metric):
    """Root of the mean squared error.

    Attributes:
      preds: Predictions, one sample per entry of the first dimension.
      targets: Targets of the same shape.
      mask: Weights of the samples.
      rmse_mode: With the sum of squared errors of each sample: `"trad"` is the root of
        its mean over samples, `"per_sample_sqrt"` the mean of its root, and
        `"average_all"` the root of the mean over all numbers.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    rmse_mode: str = "trad"

    def __post_init__(self) -> None:
        if self.rmse_mode not in _MODES:
            raise ValueError(
                f"rmse_mode must be one of {_MODES}, not {self.rmse_mode!r}."
            )

    @flax.struct.dataclass
    class State(AverageState["RootMeanSquaredError"]):
        """Mean of the squared errors, or of their roots."""

        def compute(self) -> Any:
            mean = super().compute()
            return mean if self.parent.rmse_mode == "per_sample_sqrt" else mean**0.5

    @typechecked
    def get_state(
        self,
        preds: Float["b *s"],
        targets: Float["b *s"],
        mask: Array["b"] | None = None,
    ) -> RootMeanSquaredError.State:
        return self.State.from_values(self._terms(preds, targets), mask=mask)

    def _terms(self, preds: Any, targets: Any) -> jax.Array:
        squares = jnp.square(as_real(preds) - as_real(targets))
        if self.rmse_mode == "average_all":
            return squares
        sums = squares.sum(axis=tuple(range(1, squares.ndim)))
        return sums if self.rmse_mode == "trad" else jnp.sqrt(sums)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class CosineSimilarity(Metric):
    """Mean cosine of the angle between two vectors.

    Attributes:
      pred: Vectors of shape `*b c`.
      target: Vectors of the same shape.
      mask: Weights, `*b 1`.
      eps: Added to the product of the lengths.
    """

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    eps: float = 1e-6

    State = AverageState

    @typechecked
    def get_state(
        self, pred: Float["*b c"], target: Float["*b c"], mask: Array | None = None
    ) -> AverageState:
        pred, target = as_real(pred), as_real(target)
        lengths = [jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (pred, target)]
        products = jnp.sum(pred * target, axis=-1, keepdims=True)
        cosines = products / (lengths[0] * lengths[1] + self.eps)
        return AverageState.from_values(cosines, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _DepthMetric(Metric):
    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    epsilon: float = 1e-6

    State = AverageState

    @typechecked
    def get_state(
        self, preds: Float["*a"], targets: Float["*a"], mask: Array | None = None
    ) -> AverageState:
        values = self._values(as_real(preds), as_real(targets))
        return AverageState.from_values(values, mask=mask)

    @abc.abstractmethod
    def _values(self, preds: jax.Array, targets: jax.Array) -> jax.Array: ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class MeanAbsoluteRelativeError(_DepthMetric):
    """Mean of `|pred - target| / (target + epsilon)`.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      mask: Weights; dimensions missing at the end are filled in.
      epsilon: Keeps the quotient finite.
    """

    def _values(self, preds: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.abs(preds - targets) / (targets + self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RGBMeanAbsoluteRelativeError(Metric):
    """`MeanAbsoluteRelativeError` of depths that were drawn with the viridis colours.

    A colour stands for the depth `8 * index / 255` of the nearest of the 256 colours of
    matplotlib, which the extra `kauldron[plots]` installs.

    Attributes:
      pred: Images in [0, 1], `*b h w 3`.
      target: Images of the same shape.
      mask: Weights of the pixels, `*b h w 1`.
      min_val: Smaller depths count as this one.
      max_val: Larger depths count as this one.
      epsilon: Keeps the quotient finite.
    """

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    min_val: float = 1e-3
    max_val: float = 8.0
    epsilon: float = 1e-6

    State = AverageState

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w 3"] | None = None,
        target: Float["*b h w 3"] | None = None,
        mask: Array | None = None,
        *,
        preds: Float["*b h w 3"] | None = None,
        targets: Float["*b h w 3"] | None = None,
    ) -> AverageState:
        pred = preds if pred is None else pred
        target = targets if target is None else target
        if pred is None or target is None:
            raise ValueError("RGBMeanAbsoluteRelativeError needs pred and target.")
        error = MeanAbsoluteRelativeError(epsilon=self.epsilon)
        state = error.get_state(self._depths(pred), self._depths(target), mask)
        return state.replace(parent=self)

    def _depths(self, images: Any) -> jax.Array:
        colors = apply_colormap(np.arange(256), "viridis")
        distances = jnp.square(as_real(images)[..., None, :] - colors).sum(-1)
        depths = 8 * jnp.argmin(distances, axis=-1) / 255
        return jnp.clip(depths, self.min_val, self.max_val)[..., None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Delta1(_DepthMetric):
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

    threshold: float = 1.25
    denormalize: bool = False
    depth_mean: float = 0.0
    depth_std: float = 1.0

    def _values(self, preds: jax.Array, targets: jax.Array) -> jax.Array:
        if self.denormalize:
            preds, targets = (
                x * self.depth_std + self.depth_mean for x in (preds, targets)
            )
        preds = jnp.maximum(preds, 0)
        larger, smaller = jnp.maximum(preds, targets), jnp.minimum(preds, targets)
        return larger / (smaller + self.epsilon) < self.threshold


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class PsnrWithResize(Psnr):
    """`Psnr` after the prediction was resized to the size of the target."""

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w c"],
        target: Float["*b h2 w2 c"],
        mask: Array | None = None,
    ) -> AverageState:
        resized = jax.image.resize(as_real(pred), target.shape, method="bilinear")
        return super().get_state(pred=resized, target=target, mask=mask)
