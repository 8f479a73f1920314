"""Which kind of thing a value is, and so how it is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kauldron import status
from kauldron import summaries as kd_summaries

LARGEST_VECTOR = 32


@dataclasses.dataclass
class Routed:
    """Values by kind, each by name.

    Attributes:
      scalars: Numbers.
      images: `n h w c`.
      videos: `n t h w c`.
      histograms: `kd.summaries.Histogram`.
      point_clouds: `kd.summaries.PointCloud`.
      texts: Texts.
    """

    scalars: dict[str, float] = dataclasses.field(default_factory=dict)
    images: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    videos: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: dict[str, Any] = dataclasses.field(default_factory=dict)
    point_clouds: dict[str, Any] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)


def route(
    scalars: Mapping[str, Any],
    summaries: Mapping[str, Any],
    *,
    warn: Callable[[str], None] = status.warn,
) -> Routed:
    """Sort values into kinds.

    Args:
      scalars: Losses, metrics, schedules: numbers, short vectors, texts.
      summaries: Values of summaries: anything.
      warn: Called with a message for each value that cannot be written.

    Returns:
      The values by kind; vectors are split into `name/0`, `name/1`, ...
    """
    routed = Routed()
    for name, value in scalars.items():
        _route_scalar(routed, name, value, warn)
    for name, value in summaries.items():
        _route_summary(routed, name, value, warn)
    return routed


def _route_scalar(routed: Routed, name: str, value: Any, warn: Any) -> None:
    if isinstance(value, str):
        routed.texts[name] = value
        return
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and not _is_float(array):
        warn(f"{name} is not written: a {array.dtype} array is not a number.")
    elif array.size == 1:
        routed.scalars[name] = array.reshape(()).astype(np.float64).item()
    elif array.size <= LARGEST_VECTOR:
        for index, entry in enumerate(array.ravel().astype(np.float64)):
            routed.scalars[f"{name}/{index}"] = entry.item()
    else:
        warn(
            f"{name} is not written: its shape is {array.shape}, and only up to "
            f"{LARGEST_VECTOR} numbers are written one by one. Reduce it, or use a "
            "summary."
        )


def _route_summary(routed: Routed, name: str, value: Any, warn: Any) -> None:
    if isinstance(value, kd_summaries.Histogram):
        routed.histograms[name] = value
    elif isinstance(value, kd_summaries.PointCloud):
        routed.point_clouds[name] = value
    elif isinstance(value, str):
        routed.texts[name] = value
    elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        routed.texts |= {f"{name}/{index}": text for index, text in enumerate(value)}
    else:
        _route_array(routed, name, np.asarray(value), warn)


def _route_array(routed: Routed, name: str, array: np.ndarray, warn: Any) -> None:
    if array.dtype.kind in "OUS" and all(
        isinstance(text, str | bytes) for text in array.ravel()
    ):
        for index, text in enumerate(array.ravel()):
            text = text.decode() if isinstance(text, bytes) else str(text)
            routed.texts[f"{name}/{index}" if array.size > 1 else name] = text
        return
    if array.ndim == 4 and array.size == 0:
        raise ValueError(
            f"The summary {name!r} has no image: its shape is {array.shape}."
        )
    is_picture = array.shape[-1:] in {(1,), (3,), (4,)} and (
        _is_float(array) or array.dtype == np.uint8
    )
    if array.ndim == 4 and is_picture:
        routed.images[name] = array
    elif array.ndim == 5 and is_picture:
        routed.videos[name] = array
    elif array.size == 1 and (array.dtype.kind in "biuf" or _is_float(array)):
        routed.scalars[name] = array.reshape(()).astype(np.float64).item()
    else:
        warn(
            f"The summary {name!r} is not written: {array.dtype}{list(array.shape)} is "
            "neither an image (n h w c), a video (n t h w c), a histogram, a point cloud, "
            "a text nor a number."
        )


def _is_float(array: np.ndarray) -> bool:
    """Also bfloat16 and the small floats, which numpy calls void."""
    return array.dtype.kind == "f" or "float" in array.dtype.name
