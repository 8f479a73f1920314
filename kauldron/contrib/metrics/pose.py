"""How far predicted camera poses are off."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Metric
from kauldron.metrics.averages import as_real

_MODES = ("accuracy", "mean")
_GRID = np.array(list(itertools.product((-5, 5), (-5, 5), (0, 10))), np.float32)
_PRECISION = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class PoseEndPointError(Metric):
    """Mean distance of a fixed grid of points moved by both poses.

    Attributes:
      preds: Poses `*b 3 4`: rotation and translation side by side.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    State = AverageState

    @typechecked
    def get_state(
        self,
        preds: Float["*b 3 4"],
        targets: Float["*b 3 4"],
        mask: Array | None = None,
    ) -> AverageState:
        moved = [_move(as_real(pose)) for pose in (preds, targets)]
        distances = jnp.linalg.norm(moved[0] - moved[1], axis=-1)
        return AverageState.from_values(distances, mask=mask)


def _move(pose: jax.Array) -> jax.Array:
    """Return the grid in the frame of a pose, `*b 8 3`."""
    rotated = jnp.einsum("...ij,pj->...pi", pose[..., :3], _GRID, precision=_PRECISION)
    return rotated + pose[..., None, :, 3]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class _AngleError(Metric):
    """Angles in degrees: their mean, or the share below a threshold."""

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    mode: str = "accuracy"
    threshold_degs: float = 15.0

    State = AverageState

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"mode must be one of {_MODES}, not {self.mode!r}.")

    def _state_of(self, cosines: Any, mask: Any) -> AverageState:
        values = jnp.rad2deg(jnp.arccos(jnp.clip(cosines, -1.0, 1.0)))
        if self.mode == "accuracy":
            values = values < self.threshold_degs
        return AverageState.from_values(values, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RelativeRotationError(_AngleError):
    """Angle between two rotations.

    Attributes:
      preds: Poses `*b 3 4`.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
      mode: `"mean"` for the mean angle in degrees, `"accuracy"` for the share of
        angles below the threshold.
      threshold_degs: The threshold.
    """

    @typechecked
    def get_state(
        self,
        preds: Float["*b 3 4"],
        targets: Float["*b 3 4"],
        mask: Array | None = None,
    ) -> AverageState:
        rotations = as_real(preds)[..., :3], as_real(targets)[..., :3]
        trace = jnp.sum(rotations[0] * rotations[1], axis=(-2, -1))
        return self._state_of((trace - 1) / 2, mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RelativeTranslationError(_AngleError):
    """Angle between the directions of two translations.

    Attributes:
      preds: Poses `*b 3 4`.
      targets: Poses of the same shape.
      mask: Weights of the poses, `*b`.
      mode: `"mean"` for the mean angle in degrees, `"accuracy"` for the share of
        angles below the threshold.
      threshold_degs: The threshold.
    """

    @typechecked
    def get_state(
        self,
        preds: Float["*b 3 4"],
        targets: Float["*b 3 4"],
        mask: Array | None = None,
    ) -> AverageState:
        directions = [_direction(as_real(pose)[..., 3]) for pose in (preds, targets)]
        return self._state_of(jnp.sum(directions[0] * directions[1], axis=-1), mask)


def _direction(translation: jax.Array) -> jax.Array:
    length = jnp.linalg.norm(translation, axis=-1, keepdims=True)
    return translation / jnp.maximum(length, 1e-12)
