"""Rotations as quaternions (x, y, z, w) and as matrices, of NumPy and jax arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def matrix_of_quaternion(quaternion: Any) -> Any:
    """Return the matrix, `... 3 3`, of a quaternion `... 4`, of any length but 0.

    Example:
      >>> matrix_of_quaternion(np.array([0.0, 0.0, 2.0, 2.0])).round(6).tolist()
      [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    xp = quaternion.__array_namespace__()
    norm = xp.sqrt((quaternion**2).sum(-1, keepdims=True))
    x, y, z, w = xp.moveaxis(quaternion / norm, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_of_matrix(matrix: np.ndarray) -> np.ndarray:
    """Return the quaternion, `... 4` with `w >= 0`, of a rotation matrix `... 3 3`.

    Example:
      >>> quaternion_of_matrix(np.diag([1.0, -1.0, -1.0])).tolist()
      [1.0, 0.0, 0.0, 0.0]
    """
    # Each row is the quaternion times four times one of its entries (Shepperd, 1978);
    # the longest is the one that rounding spoils least.
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(matrix, (-2, -1), (0, 1))
    rows = [
        [1 + a - e - i, b + d, c + g, h - f],
        [b + d, 1 - a + e - i, f + h, c - g],
        [c + g, f + h, 1 - a - e + i, d - b],
        [h - f, c - g, d - b, 1 + a + e + i],
    ]
    candidates = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    norms = np.linalg.norm(candidates, axis=-1)
    longest = norms.argmax(axis=-1)[..., None]
    best = np.take_along_axis(candidates, longest[..., None], axis=-2)[..., 0, :]
    quaternion = best / np.take_along_axis(norms, longest, axis=-1)
    return np.where(quaternion[..., 3:] < 0, -quaternion, quaternion) + 0.0
