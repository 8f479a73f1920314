"""The first images of a run or an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, typechecked
from kauldron.metrics.auto_state import AutoState, truncate_field
from kauldron.metrics.image import check_vrange
from kauldron.metrics.metric import Metric
from kauldron.summaries.colormaps import apply_colormap
from kauldron.summaries.image_arrays import (
    as_float,
    check_channels,
    rearrange_images,
    rescale,
    to_unit_range,
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
        images = rearrange_images(
            images, self.rearrange, self.rearrange_kwargs, name="ShowImages"
        )
        images = jnp.asarray(images[: self.num_images])
        check_channels(images, (1, 3), name="ShowImages")
        if self.cmap is not None and images.shape[-1] != 1:
            raise ValueError(
                f"ShowImages: cmap={self.cmap!r} colours images of one channel, but"
                f" these have the shape {images.shape} (`n h w c`)."
            )
        return self.State(images=rescale(as_float(images), self.in_vrange))
