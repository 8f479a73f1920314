"""Colours for numbers."""

from __future__ import annotations

import numpy as np


def apply_colormap(
    values: np.ndarray, name: str, vrange: tuple[float, float] | None = None
) -> np.ndarray:
    """Colour numbers.

    Args:
      values: Array of any shape.
      name: Name of a matplotlib colormap. `"gray"` and `"gray_r"` need no matplotlib.
      vrange: Values of the first and the last colour; by default those of the data.

    Returns:
      Array with a last dimension of 3, in [0, 1]. What is not a number is black.

    Example:
      >>> apply_colormap(np.array([0.0, 5.0, 10.0]), "gray").tolist()
      [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]]
    """
    values = np.asarray(values, np.float32)
    position = _position(values, vrange)
    is_number = np.isfinite(position)
    position = np.clip(np.where(is_number, position, 0.0), 0.0, 1.0)
    colors = _colors(position, name)
    return np.where(is_number[..., None], colors, 0.0).astype(np.float32)


def _position(values: np.ndarray, vrange: tuple[float, float] | None) -> np.ndarray:
    """Values mapped so that the range becomes [0, 1]."""
    finite = values[np.isfinite(values)]
    if vrange is None:
        vrange = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    low, high = vrange
    return (values - low) / (high - low if high > low else 1.0)


def _colors(position: np.ndarray, name: str) -> np.ndarray:
    if name in ("gray", "grey", "gray_r", "grey_r"):
        if name.endswith("_r"):
            position = 1 - position
        return np.repeat(position[..., None], 3, axis=-1)
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            f"The colormap {name!r} comes from matplotlib, which is not installed:"
            ' `pip install "kauldron[plots]"`, or use cmap="gray".'
        ) from error
    if name not in matplotlib.colormaps:
        raise ValueError(f"Unknown colormap {name!r}; see matplotlib.colormaps.")
    return matplotlib.colormaps[name](position)[..., :3]
