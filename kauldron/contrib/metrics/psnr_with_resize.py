"""Peak signal-to-noise ratio of images of different sizes."""

from __future__ import annotations

import dataclasses

import jax

from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AverageState, Psnr
from kauldron.metrics.averages import as_real


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class PsnrWithResize(Psnr):
    """`Psnr` after the prediction was resized to the size of the target."""

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w c"],
        target: Float["*b h2 w2 c"],
        mask: Array | None = None,
    ) -> AverageState:
        resized = jax.image.resize(as_real(pred), target.shape, method="bilinear")
        return super().get_state(pred=resized, target=target, mask=mask)
