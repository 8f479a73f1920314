"""Tracking of points through videos (TAP).

References:
  Doersch et al., TAP-Vid: a benchmark for tracking any point in a video (2022).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics import AverageState, Metric
from kauldron.metrics.averages import align_mask, as_real

_THRESHOLDS = np.array([1, 2, 4, 8, 16], np.float32) / 256
_QUERY_MODES = ("strided", "first")
_AXIS_ORDERS = ("BQTC", "BTQC")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _TapMetric(Metric):
    """Which points count; each batch element has one value."""

    query_frames: kontext.Key | None = None
    mask: kontext.Key | None = None
    query_mode: str = "strided"
    axis_order: str = "BQTC"

    State = AverageState

    def __post_init__(self) -> None:
        for name, allowed in (
            ("query_mode", _QUERY_MODES),
            ("axis_order", _AXIS_ORDERS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {allowed}, not {getattr(self, name)!r}."
                )

    def _query_first(self, array: Any) -> jax.Array:
        """Return the points with axes `*b q t c`."""
        array = jnp.asarray(array)
        return array if self.axis_order == "BQTC" else jnp.swapaxes(array, -3, -2)

    def _evaluated(self, shape: tuple[int, ...], query_frames: Any, mask: Any) -> Any:
        """Return which of the points `*b q t` count."""
        is_of_elements = mask is not None and mask.ndim <= len(shape) - 2
        if mask is not None and not is_of_elements:
            return jnp.broadcast_to(self._query_first(mask)[..., 0] > 0, shape)
        if query_frames is None:
            raise ValueError(
                f"{type(self).__qualname__} needs either query_frames or a mask."
            )
        frames, query_frames = jnp.arange(shape[-1]), jnp.asarray(query_frames)
        is_strided = self.query_mode == "strided"
        counts = frames != query_frames if is_strided else frames > query_frames
        return counts & (align_mask(mask, shape) > 0) if is_of_elements else counts


def _mean_over_elements(hits: jax.Array, counts: jax.Array) -> AverageState:
    """Mean of `hits / counts` (`*b`), without elements that have nothing to count."""
    shares = hits / jnp.maximum(counts, 1)
    return AverageState.from_values(shares, mask=counts > 0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapOcclusionAccuracy(_TapMetric):
    """Share of points whose visibility is predicted.

    Attributes:
      visible_pred: Predicted visibility, bool or 0 and 1, `*b q t 1`.
      visible_true: True visibility.
      query_frames: Frame in which each point was given, `*b q 1`.
      mask: Which points count, instead of `query_frames`; or weights of the batch
        elements, `*b`, besides them.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.
      axis_order: `"BQTC"`, or `"BTQC"` for arrays `*b t q c`.
    """

    visible_pred: kontext.Key = kontext.REQUIRED
    visible_true: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_state(
        self,
        visible_pred: Array["*b s t 1"],
        visible_true: Array["*b s t 1"],
        query_frames: Int["*b q 1"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        pred, true = (
            self._query_first(x)[..., 0] > 0 for x in (visible_pred, visible_true)
        )
        evaluated = self._evaluated(true.shape, query_frames, mask)
        hits = jnp.sum((pred == true) & evaluated, axis=(-2, -1))
        return _mean_over_elements(hits, jnp.sum(evaluated, axis=(-2, -1)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapPositionAccuracy(_TapMetric):
    """Share of visible points within a distance, averaged over five distances.

    Attributes:
      points_pred: Predicted positions relative to the image, `*b q t 2`.
      points_true: True positions.
      visible_true: True visibility, `*b q t 1`.
      query_frames: Frame in which each point was given, `*b q 1`.
      mask: Which points count, instead of `query_frames`; or weights of the batch
        elements, `*b`, besides them.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.
      axis_order: `"BQTC"`, or `"BTQC"` for arrays `*b t q c`.
    """

    points_pred: kontext.Key = kontext.REQUIRED
    points_true: kontext.Key = kontext.REQUIRED
    visible_true: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_state(
        self,
        points_pred: Float["*b s t 2"],
        points_true: Float["*b s t 2"],
        visible_true: Array["*b s t 1"],
        query_frames: Int["*b q 1"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        true = self._query_first(visible_true)[..., 0] > 0
        counted = self._evaluated(true.shape, query_frames, mask) & true
        within = _within(self._query_first(points_pred), self._query_first(points_true))
        hits = jnp.sum(within & counted[..., None], axis=(-3, -2)).mean(axis=-1)
        return _mean_over_elements(hits, jnp.sum(counted, axis=(-2, -1)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapAverageJaccard(_TapMetric):
    """Found points over true and wrongly predicted ones, averaged over distances.

    Attributes:
      points_pred: Predicted positions relative to the image, `*b q t 2`.
      points_true: True positions.
      visible_pred: Predicted visibility, `*b q t 1`.
      visible_true: True visibility.
      query_frames: Frame in which each point was given, `*b q 1`.
      mask: Which points count, instead of `query_frames`; or weights of the batch
        elements, `*b`, besides them.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.
      axis_order: `"BQTC"`, or `"BTQC"` for arrays `*b t q c`.
    """

    points_pred: kontext.Key = kontext.REQUIRED
    points_true: kontext.Key = kontext.REQUIRED
    visible_pred: kontext.Key = kontext.REQUIRED
    visible_true: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_state(
        self,
        points_pred: Float["*b s t 2"],
        points_true: Float["*b s t 2"],
        visible_pred: Array["*b s t 1"],
        visible_true: Array["*b s t 1"],
        query_frames: Int["*b q 1"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        pred, true = (
            self._query_first(x)[..., 0] > 0 for x in (visible_pred, visible_true)
        )
        evaluated = self._evaluated(true.shape, query_frames, mask)
        pred, true = pred & evaluated, true & evaluated
        within = _within(self._query_first(points_pred), self._query_first(points_true))
        found = jnp.sum(within & (true & pred)[..., None], axis=(-3, -2))
        wrong = jnp.sum(pred[..., None] & ~(within & true[..., None]), axis=(-3, -2))
        total = jnp.sum(true, axis=(-2, -1))[..., None] + wrong
        jaccard = jnp.mean(found / jnp.maximum(total, 1), axis=-1)
        has_points = jnp.sum(evaluated, axis=(-2, -1)) > 0
        return AverageState.from_values(jaccard, mask=has_points)


def _within(pred: jax.Array, true: jax.Array) -> jax.Array:
    """Return whether each point is near enough, for each threshold: `*b q t 5`."""
    distance = jnp.linalg.norm(as_real(pred) - as_real(true), axis=-1, keepdims=True)
    return distance < _THRESHOLDS
