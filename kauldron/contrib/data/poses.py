"""Camera poses: rotation and translation side by side, `[R | t]`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.contrib.data.arrays import takes_tensors
from kauldron.contrib.rotations import matrix_of_quaternion, quaternion_of_matrix
from kauldron.data.transforms import ElementWiseTransform
from kauldron.data.transforms.values import as_array


@dataclasses.dataclass(frozen=True, kw_only=True)
class TartanPoseToRT(ElementWiseTransform):
    """Turns poses of TartanAir, `(t, 7)`, into `(t, 3, 4)` with axes of a camera.

    The input is the translation, then the quaternion (x, y, z, w), in axes that point
    north, east and down.

    Attributes:
      key: The field or fields.

    Example:
      >>> pose = np.array([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]])
      >>> TartanPoseToRT(key="x").map({"x": pose})["x"].tolist()
      [[[0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 3.0]]]
    """

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        poses = _checked(element, (7,), self)
        rotations = matrix_of_quaternion(poses[:, 3:])[..., [1, 2, 0]]
        return np.concatenate([rotations, poses[:, :3, None]], axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativePoses(ElementWiseTransform):
    """Poses of frames relative to other frames.

    Attributes:
      key: The field or fields with poses, `(t, 3, 4)`.
      stride: Distance of the frames of a pair, from 1 on; or -1 for all pairs, of which
        number `i * t + j` is frame i relative to frame j.
      normalize_translation: Whether translations get the length 1.
      cam_to_world_poses: Whether poses lead from the camera to the world, or back.
      relative_to_first_frame: Whether every frame is compared with the first one.
      input_rotation_as_quaternion: Whether the input is `(t, 7, 1)`: quaternion (x, y, z,
        w), then translation.
      output_rotation_as_quaternion: Whether the result has that form.
    """

    stride: int
    normalize_translation: bool = False
    cam_to_world_poses: bool = True
    relative_to_first_frame: bool = False
    input_rotation_as_quaternion: bool = False
    output_rotation_as_quaternion: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 and self.stride != -1:
            raise ValueError(
                f"RelativePoses(stride={self.stride}): expected 1 or more, or -1."
            )

    @takes_tensors
    def map_element(self, element: Any) -> Any:
        if self.input_rotation_as_quaternion:
            poses = _checked(element, (7, 1), self)[..., 0]
            poses = matrix_of_quaternion(poses[:, :4]), poses[:, 4:]
        else:
            poses = _checked(element, (3, 4), self)
            poses = poses[..., :3], poses[..., 3]
        size = len(poses[0])
        targets, sources = self._pairs(size)
        target, source = ([part[i] for part in poses] for i in (targets, sources))
        if self.cam_to_world_poses:
            rotation, translation = _compose(*_inverse(*source), *target)
        else:
            rotation, translation = _compose(*source, *_inverse(*target))
        is_same = (targets == sources)[:, None]
        rotation = np.where(is_same[..., None], np.eye(3), rotation)
        translation = np.where(is_same, 0, translation)
        if self.normalize_translation:
            length = np.linalg.norm(translation, axis=-1, keepdims=True)
            translation = translation / (length + 1e-7)
        dtype = poses[0].dtype
        if self.output_rotation_as_quaternion:
            parts = [quaternion_of_matrix(rotation), translation]
            return np.concatenate(parts, axis=-1).astype(dtype)[..., None]
        parts = [rotation, translation[..., None]]
        return np.concatenate(parts, axis=-1).astype(dtype)

    def _pairs(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the target and the source of each pair."""
        if self.stride == -1:
            targets, sources = np.indices((size, size))
            return targets.ravel(), sources.ravel()
        frames = np.arange(0, size, self.stride)
        if self.relative_to_first_frame:
            return frames, np.zeros_like(frames)
        return frames[1:], frames[:-1]


def _checked(element: Any, shape: tuple[int, ...], transform: Any) -> np.ndarray:
    poses = as_array(element)
    if poses.shape[1:] != shape:
        sizes = ", ".join(map(str, shape))
        raise ValueError(
            f"{type(transform).__name__} expects (t, {sizes}), got shape {poses.shape}."
        )
    return poses


def _inverse(rotation: np.ndarray, translation: np.ndarray) -> list[np.ndarray]:
    back = np.swapaxes(rotation, -2, -1)
    return [back, -np.einsum("...ij,...j->...i", back, translation)]


def _compose(
    rotation: np.ndarray,
    translation: np.ndarray,
    next_rotation: np.ndarray,
    next_translation: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    moved = np.einsum("...ij,...j->...i", rotation, next_translation)
    return rotation @ next_rotation, moved + translation
