"""Images with boxes drawn on them."""

from __future__ import annotations

import colorsys
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Bool, Float, typechecked
from kauldron.metrics.auto_state import AutoState, truncate_field
from kauldron.metrics.image import check_vrange
from kauldron.metrics.metric import Metric
from kauldron.summaries.image_arrays import (
    as_float,
    check_channels,
    rearrange_images,
    rescale,
    to_unit_range,
)

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
            raise ValueError(f"num_colors must be at least 1, not {self.num_colors}.")

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
            return rearrange_images(
                images, metric.rearrange, metric.rearrange_kwargs, name="ShowBoxes"
            )

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
    """Evenly spaced, fully saturated hues, `num_colors 3`."""
    hues = np.arange(num_colors) / num_colors
    return np.array([colorsys.hsv_to_rgb(hue, 1.0, 1.0) for hue in hues])


def draw_box(image: np.ndarray, box: np.ndarray, color: np.ndarray) -> None:
    """Draw the outline of the pixels that a box covers, one pixel thick.

    Edges outside the image are not drawn; an empty or non-finite box is skipped.

    Args:
      image: Array `h w 3`, changed in place.
      box: `y_min, x_min, y_max, x_max` relative to height and width.
      color: Three numbers.
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
