"""How far predicted camera poses are off."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.contrib.rotations import matrix_of_quaternion
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Metric
from kauldron.metrics.averages import align_mask, as_real, weighted

_GRID = np.array(list(itertools.product((-5, 5), (-5, 5), (0, 10))), np.float32)
_PRECISION = jax.lax.Precision.HIGHEST

Pose = tuple[jax.Array, jax.Array]
"""Rotations `*b 3 3` and translations `*b 3`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _PoseMetric(Metric):
    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    rotation_as_quaternion: bool = False

    State = AverageState

    @typechecked
    def get_state(
        self,
        preds: Float["*b m n"],
        targets: Float["*b m n"],
        mask: Array | None = None,
    ) -> AverageState:
        return self._state_of(self._split(preds), self._split(targets), mask)

    @abc.abstractmethod
    def _state_of(self, pred: Pose, target: Pose, mask: Any) -> AverageState: ...

    def _split(self, poses: Any) -> Pose:
        shape = (7, 1) if self.rotation_as_quaternion else (3, 4)
        if poses.shape[-2:] != shape:
            raise ValueError(
                f"{type(self).__qualname__}: poses end with the dimensions {shape}"
                f" (rotation_as_quaternion={self.rotation_as_quaternion}), but the shape"
                f" is {poses.shape}."
            )
        poses = as_real(poses)
        if self.rotation_as_quaternion:
            return matrix_of_quaternion(poses[..., :4, 0]), poses[..., 4:, 0]
        return poses[..., :3], poses[..., 3]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class PoseEndPointError(_PoseMetric):
    """Mean distance of a fixed grid of points moved by both poses.

    Attributes:
      preds: Poses `*b 3 4`, rotation and translation side by side; with
        `rotation_as_quaternion` `*b 7 1`, quaternion (x, y, z, w), then translation.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
      rotation_as_quaternion: In which form the poses are given.
    """

    def _state_of(self, pred: Pose, target: Pose, mask: Any) -> AverageState:
        moved = [_move(*pose) for pose in (pred, target)]
        distances = jnp.linalg.norm(moved[0] - moved[1], axis=-1)
        return AverageState.from_values(distances, mask=mask)


def _move(rotation: jax.Array, translation: jax.Array) -> jax.Array:
    """Return the grid in the frame of a pose, `*b 8 3`."""
    rotated = jnp.einsum("...ij,pj->...pi", rotation, _GRID, precision=_PRECISION)
    return rotated + translation[..., None, :]


def _rotation_cosines(pred: Pose, target: Pose) -> jax.Array:
    return (jnp.sum(pred[0] * target[0], axis=(-2, -1)) - 1) / 2


def _translation_cosines(pred: Pose, target: Pose) -> jax.Array:
    return jnp.sum(_direction(pred[1]) * _direction(target[1]), axis=-1)


def _direction(translation: jax.Array) -> jax.Array:
    length = jnp.linalg.norm(translation, axis=-1, keepdims=True)
    return translation / jnp.maximum(length, 1e-8)


def _degrees(cosines: jax.Array) -> jax.Array:
    return jnp.rad2deg(jnp.arccos(jnp.clip(cosines, -1.0, 1.0)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _AngleError(_PoseMetric):
    mode: str = "accuracy"
    threshold_degs: float = 15.0

    _modes: ClassVar[tuple[str, ...]] = ("accuracy", "mean")
    _cosines: ClassVar[Callable[[Pose, Pose], jax.Array]]

    def __post_init__(self) -> None:
        if self.mode not in self._modes:
            raise ValueError(f"mode must be one of {self._modes}, not {self.mode!r}.")

    def _state_of(self, pred: Pose, target: Pose, mask: Any) -> AverageState:
        cosines = self._cosines(pred, target)
        if self.mode == "similarity":
            return AverageState.from_values(cosines, mask=mask)
        values = _degrees(cosines)
        if self.mode == "accuracy":
            values = values < self.threshold_degs
        return AverageState.from_values(values, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RelativeRotationError(_AngleError):
    """Angle between two rotations.

    Attributes:
      preds: Poses `*b 3 4`, or `*b 7 1`, as in `PoseEndPointError`.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
      rotation_as_quaternion: In which form the poses are given.
      mode: `"mean"` for the mean angle in degrees, `"accuracy"` for the share of
        angles below the threshold.
      threshold_degs: The threshold.
    """

    _cosines = staticmethod(_rotation_cosines)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RelativeTranslationError(_AngleError):
    """Angle between the directions of two translations.

    Attributes:
      preds: Poses `*b 3 4`, or `*b 7 1`, as in `PoseEndPointError`.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
      rotation_as_quaternion: In which form the poses are given.
      mode: `"mean"` for the mean angle in degrees, `"accuracy"` for the share of
        angles below the threshold, `"similarity"` for the mean cosine.
      threshold_degs: The threshold.
    """

    _modes = ("accuracy", "mean", "similarity")
    _cosines = staticmethod(_translation_cosines)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class PoseMeanAverageAccuracy(_PoseMetric):
    """Share of poses whose angles are right, averaged over thresholds.

    The error of a pose is the larger one of the angle between the rotations and that
    between the translations. The thresholds divide `[0, threshold]` in `threshold + 1`
    parts.

    Attributes:
      preds: Poses `*b t 3 4`, or `*b t 7 1`, as in `PoseEndPointError`.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b t`.
      rotation_as_quaternion: In which form the poses are given.
      threshold: The largest error in degrees that counts at all.
    """

    threshold: int = 30

    def _state_of(self, pred: Pose, target: Pose, mask: Any) -> AverageState:
        errors = jnp.maximum(
            _degrees(_rotation_cosines(pred, target)),
            _degrees(_translation_cosines(pred, target)),
        )
        num_bins = self.threshold + 1
        bins = jnp.floor(errors * num_bins / self.threshold)
        values = 1 - jnp.minimum(bins, self.threshold) / num_bins
        values = jnp.where(errors <= self.threshold, values, 0)
        weights = jnp.ones(values.shape)
        if mask is not None:
            weights = weights * align_mask(mask, values.shape)
        total = weights.sum(axis=-1)
        means = weighted(values, weights).sum(axis=-1) / jnp.where(total > 0, total, 1)
        return AverageState.from_values(means, mask=total > 0)
