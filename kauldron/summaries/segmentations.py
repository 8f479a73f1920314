"""Segmentations as coloured maps, alone or over the image."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics.auto_state import AutoState, truncate_field
from kauldron.metrics.metric import Metric
from kauldron.summaries.image_arrays import (
    as_float,
    check_channels,
    rearrange_images,
    to_unit_range,
)
from kauldron.summaries.oklab import oklab_to_rgb, rgb_to_oklab, uniform_hues


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowSegmentations(Metric):
    """The first segmentations in colours, `n h w 3`.

    Attributes:
      segmentations: Ids (integers, `n h w 1` after rearranging; negative ones are
        black) or probabilities (floats, `n h w k`).
      images: Images on which to lay the colours, `n h w 1|3` after rearranging.
      num_images: How many to keep; `None` keeps all.
      entropy: Whether uncertain pixels are darker.
      hard: Whether to show only the most probable segment.
      palette: Colours in [0, 1], one per segment; by default evenly spaced hues.
      rearrange: einops pattern for segmentations and images.
      rearrange_kwargs: Sizes of named axes of the pattern.
      edges: Whether to mark the borders between segments.
      edge_lightness: Lightness of the borders.
      image_contrast: How much the lightness comes from the image, 0 to 1.
    """

    segmentations: kontext.Key = kontext.REQUIRED
    images: kontext.Key | None = None
    num_images: int | None = 5
    entropy: bool = False
    hard: bool = False
    palette: Sequence[Sequence[float]] | None = None
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, int] | None = None
    edges: bool = False
    edge_lightness: float = 1.0
    image_contrast: float = 0.6

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowSegmentations"]):
        """The kept segmentations and images."""

        segmentations: Any = truncate_field(num_field="parent.num_images")
        images: Any = truncate_field(num_field="parent.num_images", default=None)

        def compute(self) -> np.ndarray:
            return _draw(self.parent, np.asarray(self.segmentations), self.images)

    @typechecked
    def get_state(
        self, segmentations: Float | Int, images: Array | None = None
    ) -> ShowSegmentations.State:
        segments = self._prepare(segmentations)
        if segments.dtype.kind in "iu":
            check_channels(segments, (1,), name="ShowSegmentations (ids)")
        if images is None:
            return self.State(segmentations=segments)
        pictures = as_float(self._prepare(images))
        check_channels(pictures, (1, 3), name="ShowSegmentations")
        if pictures.shape[:-1] != segments.shape[:-1]:
            raise ValueError(
                f"ShowSegmentations: images of shape {pictures.shape} do not fit"
                f" segmentations of shape {segments.shape}."
            )
        return self.State(segmentations=segments, images=pictures)

    def _prepare(self, images: Any) -> Any:
        images = rearrange_images(
            images, self.rearrange, self.rearrange_kwargs, name="ShowSegmentations"
        )
        return images[: self.num_images]


def _draw(metric: ShowSegmentations, segments: np.ndarray, images: Any) -> np.ndarray:
    is_ids = segments.dtype.kind in "iu"
    ids = segments[..., 0] if is_ids else segments.argmax(axis=-1)
    num_segments = max(int(ids.max(initial=0)) + 1, 1) if is_ids else segments.shape[-1]
    palette = _palette(metric, num_segments)
    if is_ids or metric.hard:
        lab = np.where(ids[..., None] >= 0, palette[np.maximum(ids, 0)], 0.0)
    else:
        lab = np.nan_to_num(segments.astype(np.float64)) @ palette
    if metric.entropy and not is_ids:
        lab[..., 0] *= 1 - _relative_entropy(segments.astype(np.float64))
    if images is not None:
        lab[..., 0] = _mix(lab[..., 0], _lightness(images), metric.image_contrast)
    if metric.edges:
        lab[..., 0] = _mix(lab[..., 0], metric.edge_lightness, _edge_strength(ids))
    return oklab_to_rgb(lab).astype(np.float32)


def _palette(metric: ShowSegmentations, num_segments: int) -> np.ndarray:
    """OKLab colours of the segments."""
    if metric.palette is None:
        return uniform_hues(num_segments)
    palette = np.asarray(metric.palette, np.float64)
    if palette.ndim != 2 or palette.shape[1] != 3:
        raise ValueError(
            "ShowSegmentations: the palette must have the shape (k, 3), not"
            f" {palette.shape}."
        )
    if len(palette) < num_segments:
        raise ValueError(
            f"ShowSegmentations: the palette has {len(palette)} colours, too few for"
            f" {num_segments} segments."
        )
    return rgb_to_oklab(palette)[:num_segments]


def _mix(first: np.ndarray, second: Any, share: Any) -> np.ndarray:
    return first * (1 - share) + second * share


def _relative_entropy(probs: np.ndarray) -> np.ndarray:
    """Entropy over its largest possible value, 0 to 1."""
    if probs.shape[-1] < 2:
        return np.zeros(probs.shape[:-1])
    safe = np.where(probs > 0, probs, 1.0)
    return -(safe * np.log(safe)).sum(axis=-1) / np.log(probs.shape[-1])


def _lightness(images: Any) -> np.ndarray:
    images = to_unit_range(images).astype(np.float64)
    return rgb_to_oklab(np.broadcast_to(images, (*images.shape[:-1], 3)))[..., 0]


def _edge_strength(ids: np.ndarray) -> np.ndarray:
    """How close a pixel is to where the id changes, 0 to 1; `n h w`."""
    is_edge = np.zeros(ids.shape, bool)
    is_edge[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    is_edge[:, :, 1:] |= ids[:, :, 1:] != ids[:, :, :-1]
    offsets = np.arange(-3, 4)
    window = np.exp(-(offsets**2) / 2)
    window /= window.sum()
    strength = is_edge.astype(np.float64)
    for axis in (1, 2):
        strength = np.apply_along_axis(_convolve, axis, strength, window)
    return strength / max(strength.max(initial=0.0), 1e-6)


def _convolve(line: np.ndarray, window: np.ndarray) -> np.ndarray:
    padded = np.pad(line, len(window) // 2, mode="edge")
    return np.convolve(padded, window, mode="valid")
