"""Where two images differ."""

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
    rearrange_images,
    rescale,
)


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
        images = rearrange_images(
            images, self.rearrange, self.rearrange_kwargs, name="ShowDifferenceImages"
        )
        images = as_float(jnp.asarray(images[: self.num_images]))
        images = images.astype(jnp.promote_types(images.dtype, jnp.float32))
        return rescale(images, self.vrange)
