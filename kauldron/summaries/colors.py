"""Colours for numbers, and colours that look equally far apart."""

from __future__ import annotations

import numpy as np

from kauldron.errors import did_you_mean

#
# Colormaps
#


def apply_colormap(
    values: np.ndarray, name: str, vrange: tuple[float, float] | None = None
) -> np.ndarray:
    """Turn numbers into colours.

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
    """Map values so that the range becomes [0, 1]."""
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
        raise ValueError(
            f"There is no colormap {name!r}.{did_you_mean(name, matplotlib.colormaps)} "
            "`matplotlib.colormaps` lists all."
        )
    return matplotlib.colormaps[name](position)[..., :3]


#
# The OKLab colour space, in which equal steps look equal
#
# Ottosson, A perceptual color space for image processing (2020).
#


_LINEAR_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_CONES_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def rgb_to_oklab(rgb: np.ndarray) -> np.ndarray:
    """Convert colours `... 3` in [0, 1] to lightness, a and b.

    Example:
      >>> rgb_to_oklab(np.ones(3)).round(3).tolist()
      [1.0, 0.0, 0.0]
    """
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _LINEAR_TO_CONES.T) @ _CONES_TO_LAB.T


def oklab_to_rgb(lab: np.ndarray) -> np.ndarray:
    """Convert lightness, a and b (`... 3`) to colours, clipped to [0, 1].

    Example:
      >>> oklab_to_rgb(rgb_to_oklab(np.array([0.2, 0.5, 0.9]))).round(3).tolist()
      [0.2, 0.5, 0.9]
    """
    cones = (lab @ np.linalg.inv(_CONES_TO_LAB).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(_LINEAR_TO_CONES).T, 0.0, 1.0)
    rgb = np.where(
        linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return np.clip(rgb, 0.0, 1.0)


_LIGHTNESS, _CHROMA = 0.8, 0.3


def uniform_hues(num_colors: int) -> np.ndarray:
    """Return evenly spaced hues from 1.5π on, as OKLab colours `num_colors 3`."""
    hues = 1.5 * np.pi + 2 * np.pi * np.arange(num_colors) / max(num_colors, 1)
    return np.stack(
        [
            np.full(num_colors, _LIGHTNESS),
            _CHROMA * np.cos(hues),
            _CHROMA * np.sin(hues),
        ],
        axis=-1,
    )
