"""Tracking of points through videos (TAP), in the image and in space.

References:
  Doersch et al., TAP-Vid: a benchmark for tracking any point in a video (2022).
  Koppula et al., TAPVid-3D: a benchmark for tracking any point in 3D (2024).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Metric
from kauldron.metrics.averages import align_mask, as_real

_QUERY_MODES = ("strided", "first")
_AXIS_ORDERS = ("BQTC", "BTQC")


def get_evaluation_frames(
    query_frame: Any, num_frames: int, query_mode: str
) -> jax.Array:
    """Return which frames of a video count for each query.

    Args:
      query_frame: Frame in which each point was given, `*b q`.
      num_frames: Length of the video.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.

    Returns:
      Bools, `*b q t`.

    Example:
      >>> get_evaluation_frames(np.array([1]), 3, "strided").tolist()
      [[True, False, True]]
    """
    _check_option("query_mode", query_mode, _QUERY_MODES)
    frames = jnp.arange(num_frames)
    query_frame = jnp.round(jnp.asarray(query_frame))[..., None]
    return frames != query_frame if query_mode == "strided" else frames > query_frame


def _check_option(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, not {value!r}.")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _TapMetric(Metric):
    """Which points count; each batch element has one value."""

    evaluation_mask: kontext.Key | None = None
    query_frame: kontext.Key | None = None
    query_mask: kontext.Key | None = None
    mask: kontext.Key | None = None
    query_mode: str = "strided"
    axis_order: str = "BQTC"

    State = AverageState

    def __post_init__(self) -> None:
        _check_option("query_mode", self.query_mode, _QUERY_MODES)
        _check_option("axis_order", self.axis_order, _AXIS_ORDERS)

    def _query_major(self, array: Any) -> jax.Array:
        """Return points with axes `*b q t c`."""
        array = jnp.asarray(array)
        return array if self.axis_order == "BQTC" else jnp.swapaxes(array, -3, -2)

    def _are_within(self, pred: Any, true: Any, thresholds: Any) -> jax.Array:
        """Return which points are near enough, for each threshold, `*b q t n`."""
        return self._query_major(_distances(pred, true)) < jnp.asarray(thresholds)

    def _is_visible(self, visible: Any) -> jax.Array:
        return self._query_major(visible) != 0

    def _weights(
        self,
        visible: jax.Array,
        evaluation_mask: Any,
        query_frame: Any = None,
        query_mask: Any = None,
    ) -> jax.Array:
        """Return how much each point counts, `*b q t 1`."""
        if evaluation_mask is not None:
            weights = self._query_major(jnp.asarray(evaluation_mask)[..., None]) != 0
        else:
            num_frames = visible.shape[-2]
            if query_frame is None:
                query_frame = jnp.zeros(visible.shape[:-2])
            weights = get_evaluation_frames(query_frame, num_frames, self.query_mode)
            weights = weights[..., None]
        if query_mask is not None:
            weights = weights * as_real(query_mask)[..., None, None]
        return weights.astype(jnp.float32)


def _total(points: jax.Array, weights: jax.Array) -> jax.Array:
    """Add up the weights of points `*b q t n`: `*b n`."""
    return jnp.sum(points * weights, axis=(-3, -2))


def _mean_share(hits: jax.Array, counts: jax.Array, mask: Any) -> AverageState:
    """Average `hits / counts`, both `*b n`; elements that have no points do not count."""
    shares = jnp.mean(hits / jnp.where(counts > 0, counts, 1), axis=-1)
    is_counted = counts[..., -1] > 0
    if mask is not None:
        aligned = align_mask(mask, shares.shape or (1,))
        is_counted = is_counted * aligned.reshape(shares.shape)
    return AverageState.from_values(shares, mask=is_counted)


def _position_accuracy(
    within: jax.Array, pred: Any, true: jax.Array, weights: jax.Array, mask: Any
) -> AverageState:
    del pred  # whether a point is predicted to be visible does not matter
    return _mean_share(_total(within & true, weights), _total(true, weights), mask)


def _average_jaccard(
    within: jax.Array, pred: jax.Array, true: jax.Array, weights: jax.Array, mask: Any
) -> AverageState:
    found = _total(within & true & pred, weights)
    wrong = _total(pred & ~(within & true), weights)
    return _mean_share(found, _total(true, weights) + wrong, mask)


#
# In the image
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapOcclusionAccuracy(_TapMetric):
    """Share of points whose visibility is predicted.

    Attributes:
      pred_visible: Predicted visibility, `*b q t 1`; what is not 0 is visible.
      gt_visible: True visibility.
      evaluation_mask: Which points count, `*b q t`; by default `query_frame` decides.
      query_frame: Frame in which each point was given, `*b q`; by default the first.
      query_mask: Weights of the queries, `*b q`.
      mask: Weights of the batch elements, `*b`.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.
      axis_order: `"BQTC"`, or `"BTQC"` for arrays `*b t q c`.
    """

    pred_visible: kontext.Key = kontext.REQUIRED
    gt_visible: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_state(
        self,
        pred_visible: Array["*b m n 1"],
        gt_visible: Array["*b m n 1"],
        evaluation_mask: Array["*b m n"] | None = None,
        query_frame: Array["*b q"] | None = None,
        query_mask: Array["*b q"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        pred, true = self._is_visible(pred_visible), self._is_visible(gt_visible)
        weights = self._weights(true, evaluation_mask, query_frame, query_mask)
        counts = _total(jnp.ones_like(true), weights)
        return _mean_share(_total(pred == true, weights), counts, mask)


_THRESHOLDS = tuple(pixels / 256 for pixels in (1, 2, 4, 8, 16))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapPositionAccuracy(_TapMetric):
    """Share of visible points within a distance, averaged over several distances.

    Attributes:
      pred_tracks: Predicted positions relative to the image, `*b q t 2`.
      gt_tracks: True positions.
      gt_visible: True visibility, `*b q t 1`.
      thresholds: The distances.
      evaluation_mask: And other options as in `TapOcclusionAccuracy`.
    """

    pred_tracks: kontext.Key = kontext.REQUIRED
    gt_tracks: kontext.Key = kontext.REQUIRED
    gt_visible: kontext.Key = kontext.REQUIRED
    thresholds: Sequence[float] = _THRESHOLDS

    @typechecked
    def get_state(
        self,
        pred_tracks: Float["*b m n 2"],
        gt_tracks: Float["*b m n 2"],
        gt_visible: Array["*b m n 1"],
        evaluation_mask: Array["*b m n"] | None = None,
        query_frame: Array["*b q"] | None = None,
        query_mask: Array["*b q"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        true = self._is_visible(gt_visible)
        weights = self._weights(true, evaluation_mask, query_frame, query_mask)
        within = self._are_within(pred_tracks, gt_tracks, self.thresholds)
        return _position_accuracy(within, None, true, weights, mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class TapAverageJaccard(_TapMetric):
    """Found points over true and wrongly predicted ones, averaged over distances.

    Attributes:
      pred_tracks: Predicted positions relative to the image, `*b q t 2`.
      pred_visible: Predicted visibility, `*b q t 1`.
      gt_tracks: True positions.
      gt_visible: True visibility.
      thresholds: The distances.
      evaluation_mask: And other options as in `TapOcclusionAccuracy`.
    """

    pred_tracks: kontext.Key = kontext.REQUIRED
    pred_visible: kontext.Key = kontext.REQUIRED
    gt_tracks: kontext.Key = kontext.REQUIRED
    gt_visible: kontext.Key = kontext.REQUIRED
    thresholds: Sequence[float] = _THRESHOLDS

    @typechecked
    def get_state(
        self,
        pred_tracks: Float["*b m n 2"],
        pred_visible: Array["*b m n 1"],
        gt_tracks: Float["*b m n 2"],
        gt_visible: Array["*b m n 1"],
        evaluation_mask: Array["*b m n"] | None = None,
        query_frame: Array["*b q"] | None = None,
        query_mask: Array["*b q"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        pred, true = self._is_visible(pred_visible), self._is_visible(gt_visible)
        weights = self._weights(true, evaluation_mask, query_frame, query_mask)
        within = self._are_within(pred_tracks, gt_tracks, self.thresholds)
        return _average_jaccard(within, pred, true, weights, mask)


def _distances(pred: Any, true: Any) -> jax.Array:
    return jnp.linalg.norm(as_real(pred) - as_real(true), axis=-1, keepdims=True)


#
# In space
#

_DEPTH_SCALINGS = ("median", "reproduce_2d")
_METRES: dict[float, float] = {1: 0.01, 2: 0.04, 4: 0.16, 8: 0.64, 16: 2.56}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _Tap3DMetric(_TapMetric):
    """Positions in camera coordinates; the query is the first frame."""

    _state_of: ClassVar[Callable[..., AverageState]]

    pred_tracks: kontext.Key = kontext.REQUIRED
    pred_visible: kontext.Key = kontext.REQUIRED
    gt_tracks: kontext.Key = kontext.REQUIRED
    gt_visible: kontext.Key = kontext.REQUIRED
    intrinsics: kontext.Key = kontext.REQUIRED
    gt_tracks_2d: kontext.Key | None = None
    pred_tracks_2d: kontext.Key | None = None
    offline_depth_predictions: kontext.Key | None = None
    query_frame: None = dataclasses.field(default=None, init=False)
    query_mask: None = dataclasses.field(default=None, init=False)
    depth_scaling: str = "median"
    thresholds: Sequence[float] = (1, 2, 4, 8, 16)
    use_fixed_metric_threshold: bool = False
    use_offline_depth_predictions: bool = False
    use_gt_tracks_for_indexing_into_offline_depth_predictions: bool = False
    track_max_resolution: tuple[int, int] = (256, 256)
    use_normalized_coordinates: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_option("depth_scaling", self.depth_scaling, _DEPTH_SCALINGS)
        if self.use_fixed_metric_threshold and not {*self.thresholds} <= {*_METRES}:
            raise ValueError(
                f"thresholds={self.thresholds}: with use_fixed_metric_threshold they are"
                f" among {tuple(_METRES)}."
            )
        if self.use_offline_depth_predictions and self.axis_order != "BTQC":
            raise ValueError(
                'use_offline_depth_predictions needs axis_order="BTQC", not'
                f" {self.axis_order!r}."
            )

    @typechecked
    def get_state(
        self,
        pred_tracks: Float["*b m n 3"],
        pred_visible: Array["*b m n 1"],
        gt_tracks: Float["*b m n 3"],
        gt_visible: Array["*b m n 1"],
        intrinsics: Float["*b 4"],
        evaluation_mask: Array["*b m n"] | None = None,
        gt_tracks_2d: Float["*b m n 2"] | None = None,
        pred_tracks_2d: Float["*b m n 2"] | None = None,
        offline_depth_predictions: Float | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        intrinsics = as_real(intrinsics)[..., None, None, :]
        pred, true = self._is_visible(pred_visible), self._is_visible(gt_visible)
        if self.use_offline_depth_predictions:
            use_true = self.use_gt_tracks_for_indexing_into_offline_depth_predictions
            tracks_2d = gt_tracks_2d if use_true else pred_tracks_2d
            pred_tracks = self._lift(tracks_2d, offline_depth_predictions, intrinsics)
        gt_tracks = self._query_major(as_real(gt_tracks))
        pred_tracks = self._query_major(as_real(pred_tracks))
        pred_tracks *= self._scale(pred_tracks, gt_tracks, pred & true)
        within = _distances(pred_tracks, gt_tracks) < self._radii(gt_tracks, intrinsics)
        weights = self._weights(true, evaluation_mask)
        return self._state_of(within, pred, true, weights, mask)

    def _lift(self, tracks: Any, depths: Any, intrinsics: jax.Array) -> jax.Array:
        """Return the positions, `*b t q 3`, of tracks in the image with these depths."""
        if tracks is None or depths is None:
            raise ValueError(
                f"{type(self).__qualname__}: use_offline_depth_predictions needs"
                " offline_depth_predictions and the 2D tracks."
            )
        tracks, depths = as_real(tracks), as_real(depths)
        if depths.ndim > tracks.ndim:  # maps `*b t h w 1`
            height, width = depths.shape[-3:-1]
            pixels = tracks
            if self.use_normalized_coordinates:
                pixels = tracks * jnp.array([width, height])
            limits = jnp.array([width - 1, height - 1])
            x, y = jnp.moveaxis(jnp.clip(pixels.astype(jnp.int32), 0, limits), -1, 0)
            flat = depths.reshape(*depths.shape[:-3], height * width)
            depths = jnp.take_along_axis(flat, y * width + x, axis=-1)[..., None]
        focal, centre = intrinsics[..., :2], intrinsics[..., 2:]
        return jnp.concatenate([(tracks - centre) * depths / focal, depths], axis=-1)

    def _scale(self, pred: jax.Array, true: jax.Array, both: jax.Array) -> jax.Array:
        """Return what brings the predictions to the scale of the truth."""
        if self.depth_scaling == "reproduce_2d":
            return true[..., 2:] / pred[..., 2:]
        medians = [
            jnp.nanmedian(
                jnp.where(both, jnp.maximum(lengths, 1e-6), jnp.nan),
                axis=(-3, -2, -1),
                keepdims=True,
            )
            for lengths in (
                jnp.linalg.norm(points, axis=-1, keepdims=True)
                for points in (true, pred)
            )
        ]
        return jnp.nan_to_num(medians[0] / medians[1], nan=1.0)

    def _radii(self, true: jax.Array, intrinsics: jax.Array) -> jax.Array:
        """Return how far off each point may be, for each threshold, `*b q t n`."""
        if self.use_fixed_metric_threshold:
            return jnp.array([_METRES[threshold] for threshold in self.thresholds])
        focal = intrinsics[..., :2]
        if self.use_normalized_coordinates:
            focal = focal * np.array(self.track_max_resolution[::-1], np.float32)
        length = jnp.sqrt(jnp.prod(focal, axis=-1, keepdims=True))
        return jnp.asarray(self.thresholds) * true[..., 2:] / length


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Tap3DPositionAccuracy(_Tap3DMetric):
    """Share of visible points within a distance in space, averaged over distances.

    Attributes:
      pred_tracks: Predicted positions in camera coordinates, `*b q t 3`.
      pred_visible: Predicted visibility, `*b q t 1`.
      gt_tracks: True positions.
      gt_visible: True visibility.
      intrinsics: Focal lengths and centre `fx, fy, cx, cy` of the cameras, `*b 4`.
      evaluation_mask: Which points count, `*b q t`; by default all but the first frame.
      mask: Weights of the batch elements, `*b`.
      thresholds: Distances in pixels at the depth of the point.
      use_fixed_metric_threshold: Whether the thresholds 1, 2, 4, 8, 16 stand for 0.01,
        0.04, 0.16, 0.64 and 2.56 metres instead.
      depth_scaling: How predictions are scaled first: by the ratio of the `"median"`
        distances from the camera, or each point to its true depth (`"reproduce_2d"`).
      use_offline_depth_predictions: Whether to make the predictions from tracks in the
        image and depths; for `axis_order="BTQC"`.
      offline_depth_predictions: Depth maps `*b t h w 1`, or depths `*b t q 1`.
      pred_tracks_2d: Predicted tracks in the image, `*b t q 2`.
      gt_tracks_2d: True tracks in the image.
      use_gt_tracks_for_indexing_into_offline_depth_predictions: Whether to use
        `gt_tracks_2d` in place of `pred_tracks_2d`.
      use_normalized_coordinates: Whether tracks in the image and intrinsics are relative
        to the size of the image.
      track_max_resolution: Height and width of the image that pixels refer to.
      query_mode: `"strided"` counts all frames but the query, `"first"` those after it.
      axis_order: `"BQTC"`, or `"BTQC"` for arrays `*b t q c`.
    """

    _state_of = staticmethod(_position_accuracy)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Tap3DAverageJaccard(_Tap3DMetric):
    """Found points over true and wrong ones in space, averaged over distances.

    The attributes are those of `Tap3DPositionAccuracy`.
    """

    _state_of = staticmethod(_average_jaccard)
