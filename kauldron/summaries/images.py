"""Pictures: images, differences of images, boxes and segmentations."""

from __future__ import annotations

import colorsys
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import einops
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Bool, Float, Int, typechecked
from kauldron.metrics.auto_state import AutoState, truncate_field
from kauldron.metrics.image import check_vrange
from kauldron.metrics.metric import Metric
from kauldron.summaries.colors import (
    apply_colormap,
    oklab_to_rgb,
    rgb_to_oklab,
    uniform_hues,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowImages(Metric):
    """The first images, as floats in [0, 1] of shape `n h w 1|3`.

    Attributes:
      images: Float or uint8 images of any rank.
      num_images: How many to keep; `None` keeps all.
      in_vrange: Value range to clip to and to map to [0, 1].
      cmap: Colormap for images of one channel; without `in_vrange` it spans the values
        of the data.
      rearrange: einops pattern whose result is `n h w c`; by default leading dimensions
        are flattened.
      rearrange_kwargs: Sizes of named axes of the pattern.

    Example:
      >>> videos = np.zeros((2, 3, 8, 8, 1), np.uint8)
      >>> show = ShowImages(num_images=4, rearrange="b t h w c -> b h (t w) c")
      >>> show(images=videos).shape
      (2, 8, 24, 1)
    """

    images: kontext.Key = kontext.REQUIRED
    num_images: int | None = 5
    in_vrange: tuple[float, float] | None = None
    cmap: str | None = None
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowImages"]):
        """The kept images, `n h w c`."""

        images: Any = truncate_field(num_field="parent.num_images")

        def compute(self) -> np.ndarray:
            images = np.asarray(self.images, np.float32)
            if self.parent.cmap is None:
                return to_unit_range(images)
            vrange = None if self.parent.in_vrange is None else (0.0, 1.0)
            return apply_colormap(images[..., 0], self.parent.cmap, vrange)

    @typechecked
    def get_state(self, images: Array) -> ShowImages.State:
        images = jnp.asarray(rearrange_images(self, images)[: self.num_images])
        check_channels(images, (1, 3), name="ShowImages")
        if self.cmap is not None and images.shape[-1] != 1:
            raise ValueError(
                f"ShowImages: cmap={self.cmap!r} colours images of one channel, but"
                f" these have the shape {images.shape} (`n h w c`)."
            )
        return self.State(images=rescale(as_float(images), self.in_vrange))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowDifferenceImages(Metric):
    """Absolute difference of images, averaged over channels and coloured.

    Attributes:
      images1: Float or uint8 images of any rank.
      images2: Images of the same shape.
      num_images: How many to keep; `None` keeps all.
      vrange: Value range to clip both to and to map to [0, 1]. The colours then span
        [0, 1]; without it, the differences that occur.
      cmap: Name of a colormap.
      rearrange: einops pattern whose result is `n h w c`.
      rearrange_kwargs: Sizes of named axes of the pattern.
    """

    images1: kontext.Key = kontext.REQUIRED
    images2: kontext.Key = kontext.REQUIRED
    num_images: int | None = 5
    vrange: tuple[float, float] | None = None
    cmap: str = "gray"
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        check_vrange(self.vrange, name="vrange")

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowDifferenceImages"]):
        """The kept differences, `n h w`."""

        differences: Any = truncate_field(num_field="parent.num_images")

        def compute(self) -> np.ndarray:
            vrange = None if self.parent.vrange is None else (0.0, 1.0)
            return apply_colormap(
                np.asarray(self.differences), self.parent.cmap, vrange
            )

    @typechecked
    def get_state(
        self, images1: Array["*any"], images2: Array["*any"]
    ) -> ShowDifferenceImages.State:
        first, second = (self._prepare(images) for images in (images1, images2))
        return self.State(differences=jnp.abs(first - second).mean(axis=-1))

    def _prepare(self, images: Any) -> Any:
        images = as_float(rearrange_images(self, images)[: self.num_images])
        images = images.astype(jnp.promote_types(images.dtype, jnp.float32))
        return rescale(images, self.vrange)


#
# Boxes
#


# Of a pixel: a float32 box at 0.6 of 10 pixels ends at 6.0000002, and means 6.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class ShowBoxes(Metric):
    """The first images with the outlines of boxes, `n h w 3`.

    Attributes:
      images: Float or uint8 images of shape `*b h w 1|3`.
      boxes: `y_min, x_min, y_max, x_max` relative to height and width, `*b k 4`.
      boxes_mask: Which boxes to draw, bool of shape `*b k 1`.
      num_images: How many elements of the first dimension to keep; `None` keeps all.
      num_colors: Number of colours; box `i` has colour `i % num_colors`.
      in_vrange: Value range to clip to and to map to [0, 1].
      rearrange: einops pattern applied after drawing, whose result is `n h w c`.
      rearrange_kwargs: Sizes of named axes of the pattern.
    """

    images: kontext.Key = kontext.REQUIRED
    boxes: kontext.Key = kontext.REQUIRED
    boxes_mask: kontext.Key | None = None
    num_images: int | None = 5
    num_colors: int = 16
    in_vrange: tuple[float, float] | None = None
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")
        if self.num_colors < 1:
            raise ValueError(
                f"ShowBoxes.num_colors must be at least 1, not {self.num_colors}."
            )

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["ShowBoxes"]):
        """Images, boxes and which of them to draw."""

        images: Any = truncate_field(num_field="parent.num_images")
        boxes: Any = truncate_field(num_field="parent.num_images")
        boxes_mask: Any = truncate_field(num_field="parent.num_images")

        def compute(self) -> np.ndarray:
            metric: ShowBoxes = self.parent
            images = to_unit_range(self.images)
            images = np.broadcast_to(images, (*images.shape[:-1], 3)).copy()
            colors = box_colors(metric.num_colors)
            for index in np.ndindex(images.shape[:-3]):
                boxes = np.asarray(self.boxes[index], np.float64)
                for i in np.flatnonzero(self.boxes_mask[index]):
                    draw_box(images[index], boxes[i], colors[i % len(colors)])
            return rearrange_images(metric, images)

    @typechecked
    def get_state(
        self,
        images: Array["*b h w c"],
        boxes: Float["*b k 4"],
        boxes_mask: Bool["*b k 1"] | None = None,
    ) -> ShowBoxes.State:
        check_channels(images, (1, 3), name="ShowBoxes")
        is_shown = jnp.ones((*boxes.shape[:-1], 1), bool)
        if boxes_mask is not None:
            is_shown = boxes_mask
        if images.ndim == 3:
            images, boxes, is_shown = images[None], boxes[None], is_shown[None]
        first = slice(self.num_images)
        return self.State(
            images=rescale(as_float(images[first]), self.in_vrange),
            boxes=boxes[first],
            boxes_mask=is_shown[first],
        )


def box_colors(num_colors: int) -> np.ndarray:
    """Return evenly spaced, fully saturated hues, `num_colors 3`."""
    hues = np.arange(num_colors) / num_colors
    return np.array([colorsys.hsv_to_rgb(hue, 1.0, 1.0) for hue in hues])


def draw_box(image: np.ndarray, box: np.ndarray, color: np.ndarray) -> None:
    """Draw the outline of the pixels that a box covers, one pixel thick.

    Edges outside the image are not drawn; an empty or non-finite box is skipped.

    The box is `y_min, x_min, y_max, x_max` relative to height and width; the image
    (`h w 3`) is changed in place.
    """
    height, width = image.shape[:2]
    y_min, x_min, y_max, x_max = box * (height, width, height, width)
    if not np.isfinite(box).all() or y_max <= y_min or x_max <= x_min:
        return
    top, left = (math.floor(x + _TOLERANCE) for x in (y_min, x_min))
    bottom, right = (math.ceil(x - _TOLERANCE) - 1 for x in (y_max, x_max))
    rows = slice(max(top, 0), max(bottom + 1, 0))
    columns = slice(max(left, 0), max(right + 1, 0))
    for row in {top, bottom}:
        if 0 <= row < height:
            image[row, columns] = color
    for column in {left, right}:
        if 0 <= column < width:
            image[rows, column] = color


#
# Segmentations
#


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
        segments = rearrange_images(self, segmentations)[: self.num_images]
        if segments.dtype.kind in "iu":
            check_channels(segments, (1,), name="ShowSegmentations (ids)")
        if images is None:
            return self.State(segmentations=segments)
        pictures = as_float(rearrange_images(self, images)[: self.num_images])
        check_channels(pictures, (1, 3), name="ShowSegmentations")
        if pictures.shape[:-1] != segments.shape[:-1]:
            raise ValueError(
                f"ShowSegmentations: images of shape {pictures.shape} do not fit"
                f" segmentations of shape {segments.shape}."
            )
        return self.State(segmentations=segments, images=pictures)


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
    """Return the OKLab colours of the segments."""
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
    """Return the entropy over its largest possible value, 0 to 1."""
    if probs.shape[-1] < 2:
        return np.zeros(probs.shape[:-1])
    safe = np.where(probs > 0, probs, 1.0)
    return -(safe * np.log(safe)).sum(axis=-1) / np.log(probs.shape[-1])


def _lightness(images: Any) -> np.ndarray:
    images = to_unit_range(images).astype(np.float64)
    return rgb_to_oklab(np.broadcast_to(images, (*images.shape[:-1], 3)))[..., 0]


def _edge_strength(ids: np.ndarray) -> np.ndarray:
    """Return how close pixels are to a change of id, 0 to 1; `n h w`."""
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


#
# Layout, value range and channels of images
#


def rearrange(metric: Any, array: Any, *, default: str) -> Any:
    """Apply the einops pattern of a metric, or the default one.

    Raise `ValueError`, which names the metric, if it does not fit.
    """
    pattern = metric.rearrange or default
    try:
        return einops.rearrange(array, pattern, **(metric.rearrange_kwargs or {}))
    except einops.EinopsError as error:
        raise ValueError(
            f"{type(metric).__name__}: cannot rearrange an array of shape"
            f" {np.shape(array)} with {pattern!r}: {error}"
        ) from None


def rearrange_images(metric: Any, images: Any) -> Any:
    """Bring images to `n h w c`; by default leading dimensions are flattened."""
    images = rearrange(metric, images, default="... h w c -> (...) h w c")
    if images.ndim != 4:
        raise ValueError(
            f"{type(metric).__name__}: images must have the shape `n h w c`, but have"
            f" {images.shape} (rearrange={metric.rearrange!r})."
        )
    return images


def check_channels(images: Any, allowed: tuple[int, ...], *, name: str) -> None:
    """Raise `ValueError` unless the last dimension is one of the allowed sizes."""
    if images.shape[-1] not in allowed:
        expected = " or ".join(map(str, allowed))
        raise ValueError(
            f"{name}: images must have {expected} channels, but their shape is"
            f" {images.shape} (`n h w c`). Arrays without an axis for channels need a"
            ' pattern such as rearrange="n h w -> n h w 1".'
        )


def as_float(images: Any) -> jax.Array:
    """Return uint8 images as floats in [0, 1]; floats stay as they are."""
    images = jnp.asarray(images)
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise TypeError(f"Images must be float or uint8, not {images.dtype}.")
    return images


def rescale(images: jax.Array, vrange: tuple[float, float] | None) -> jax.Array:
    """Clip to the value range and map it to [0, 1]."""
    if vrange is None:
        return images
    low, high = vrange
    images = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    return (jnp.clip(images, low, high) - low) / (high - low)


def to_unit_range(images: np.ndarray) -> np.ndarray:
    """Return float32 images clipped to [0, 1]; NaN becomes 0."""
    images = np.asarray(images, np.float32)
    return np.clip(np.nan_to_num(images, nan=0.0), 0.0, 1.0)
