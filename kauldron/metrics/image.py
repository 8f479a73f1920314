"""How similar two images are: PSNR and SSIM."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics.averages import AverageState, as_real
from kauldron.metrics.metric import Metric


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Psnr(Metric):
    """Peak signal-to-noise ratio in decibel, averaged over images.

    Attributes:
      pred: Images of shape `*b h w c`.
      target: Images of the same shape.
      mask: Weights of the images, `*b 1`.
      in_vrange: Smallest and largest value an image may have.
      clip: Largest ratio counted for an image.
    """

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    clip: float | None = None

    State = AverageState

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w c"],
        target: Float["*b h w c"],
        mask: Array | None = None,
    ) -> AverageState:
        return AverageState.from_values(self._ratios(pred, target), mask=mask)

    @functools.partial(jax.jit, static_argnums=0)
    def _ratios(self, pred: Any, target: Any) -> jax.Array:
        """Ratio of each image, `*b 1`."""
        errors = jnp.square(as_real(pred) - as_real(target)).mean(axis=(-3, -2, -1))
        low, high = self.in_vrange
        psnr = 20 * np.log10(high - low) - 10 * jnp.log10(jnp.maximum(errors, 1e-10))
        if self.clip is not None:
            psnr = jnp.minimum(psnr, self.clip)
        return psnr[..., None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Ssim(Metric):
    """Structural similarity, averaged over images.

    Attributes:
      pred: Images of shape `*b h w c`, at least `filter_size` high and wide.
      target: Images of the same shape.
      mask: Weights of the images, `*b 1`.
      in_vrange: Smallest and largest value an image may have.
      filter_size: Size of the Gaussian window.
      filter_sigma: Its width.
      k1: Stabiliser of the luminance term.
      k2: Stabiliser of the contrast term.

    References:
      Wang et al., Image quality assessment: from error visibility to structural
      similarity (2004).
    """

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    filter_size: int = 11
    filter_sigma: float = 1.5
    k1: float = 0.01
    k2: float = 0.03

    State = AverageState

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")
        for name in ("filter_size", "filter_sigma"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}.")

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w c"],
        target: Float["*b h w c"],
        mask: Array | None = None,
    ) -> AverageState:
        if min(pred.shape[-3:-1]) < self.filter_size:
            raise ValueError(
                f"Ssim: images of {pred.shape[-3]} x {pred.shape[-2]} pixels are smaller"
                f" than the filter (filter_size={self.filter_size})."
            )
        return AverageState.from_values(self._similarities(pred, target), mask=mask)

    @functools.partial(jax.jit, static_argnums=0)
    def _similarities(self, pred: Any, target: Any) -> jax.Array:
        """Similarity of each image, `*b 1`."""
        low, high = self.in_vrange
        pred, target = ((as_real(x) - low) / (high - low) for x in (pred, target))
        return self._similarity_map(pred, target).mean(axis=(-3, -2, -1))[..., None]

    def _similarity_map(self, x: jax.Array, y: jax.Array) -> jax.Array:
        blur = self._blur
        mean_x, mean_y = blur(x), blur(y)
        var_x = jnp.maximum(0.0, blur(x**2) - mean_x**2)
        var_y = jnp.maximum(0.0, blur(y**2) - mean_y**2)
        cov = blur(x * y) - mean_x * mean_y
        cov = jnp.sign(cov) * jnp.minimum(jnp.sqrt(var_x * var_y), jnp.abs(cov))
        c1, c2 = self.k1**2, self.k2**2
        return ((2 * mean_x * mean_y + c1) * (2 * cov + c2)) / (
            (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
        )

    def _blur(self, images: jax.Array) -> jax.Array:
        """Gaussian blur without padding, as a weighted sum of shifted images."""
        size = self.filter_size
        offsets = np.arange(size) - (size - 1) / 2
        window = np.exp(-(offsets**2) / (2 * self.filter_sigma**2))
        window /= window.sum()
        for axis in (-3, -2):
            length = images.shape[axis] - size + 1
            images = sum(
                float(weight)
                * jax.lax.slice_in_dim(images, i, i + length, axis=images.ndim + axis)
                for i, weight in enumerate(window)
            )  # type: ignore[assignment]
        return images


def check_vrange(vrange: tuple[float, float] | None, *, name: str) -> None:
    """Raise `ValueError` unless it is `None` or a pair (low, high), low < high."""
    if vrange is not None and not (len(vrange) == 2 and vrange[0] < vrange[1]):
        raise ValueError(f"{name} must be (low, high) with low < high, not {vrange}.")
