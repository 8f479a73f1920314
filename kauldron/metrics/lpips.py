"""Perceptual distance of images, with the user's own copy of the weights."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics.averages import AverageState, as_real
from kauldron.metrics.image import check_vrange
from kauldron.metrics.metric import NOT_FROZEN, Metric

DEFAULT_WEIGHTS = pathlib.Path(__file__).parent / "data" / "lpips_vgg.npz"
_CONVOLUTIONS_PER_BLOCK = (2, 2, 3, 3, 3)
_SHIFT = (1 + np.array([-0.030, -0.088, -0.188], np.float32)) / 2
_SCALE = np.array([0.458, 0.448, 0.450], np.float32) / 2
_PRECISION = jax.lax.Precision.HIGHEST


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class LpipsVgg(Metric):
    """Distance of images in the features of a VGG-16, averaged over images.

    The weights are not part of the package. They are arrays named
    `conv<block>_<index>/kernel` (`3 3 in out`) and `/bias` for block 1 to 5, and
    `lin<block>/kernel` (`1 1 in 1`).

    Attributes:
      pred: Images of shape `*b h w 3`, at least 16 pixels high and wide.
      target: Images of the same shape.
      mask: Weights of the images, `*b 1`.
      in_vrange: Smallest and largest value an image may have.
      weights: Path of an `.npz` file, or a mapping from name to array (nested mappings
        are joined by `/`).

    References:
      Zhang et al., The unreasonable effectiveness of deep features as a perceptual
      metric (2018).
    """

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    weights: Any = dataclasses.field(default=None, metadata=NOT_FROZEN, repr=False)

    State = AverageState

    def __post_init__(self) -> None:
        check_vrange(self.in_vrange, name="in_vrange")
        if isinstance(self.weights, Mapping):
            object.__setattr__(self, "weights", _Weights(self.weights))
        elif isinstance(self.weights, os.PathLike):
            object.__setattr__(self, "weights", os.fspath(self.weights))

    @typechecked
    def get_state(
        self,
        pred: Float["*b h w 3"],
        target: Float["*b h w 3"],
        mask: Array | None = None,
    ) -> AverageState:
        if min(pred.shape[-3:-1]) < 16:
            raise ValueError(
                f"LpipsVgg: images of {pred.shape[-3]} x {pred.shape[-2]} pixels are too"
                " small, they must have at least 16 x 16."
            )
        weights = self._arrays()
        low, high = self.in_vrange
        images = jnp.stack([as_real(pred), as_real(target)])
        images = (images - low) / (high - low)
        distances = _distances(images.reshape(-1, *images.shape[-3:]), weights)
        return AverageState.from_values(
            distances.reshape(*pred.shape[:-3], 1), mask=mask
        )

    def _arrays(self) -> Mapping[str, np.ndarray]:
        if isinstance(self.weights, _Weights):
            return self.weights.arrays
        return _read_weights(self.weights or os.fspath(DEFAULT_WEIGHTS))


class _Weights:
    """A tree of weights that compares by identity, so that the metric has a hash."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        flat = kontext.flatten_with_path(dict(tree), separator="/")
        self.arrays = {name: np.asarray(array) for name, array in flat.items()}


@functools.lru_cache(maxsize=4)
def _read_weights(path: str) -> Mapping[str, np.ndarray]:
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"Using `LpipsVgg` requires the weights of the network, which are not part"
            f" of the package; there is no file {path}. Set the argument `weights` to"
            " the path of an .npz file, or to a tree of arrays."
        )
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


#
# The network
#


@jax.jit
def _distances(images: jax.Array, weights: Mapping[str, np.ndarray]) -> jax.Array:
    """Distance of the first half of the images to the second."""
    features = (images - _SHIFT) / _SCALE
    distances = jnp.zeros((len(images) // 2,), jnp.float32)
    for block, num_convolutions in enumerate(_CONVOLUTIONS_PER_BLOCK, start=1):
        if block > 1:
            features = _max_pool(features)
        for index in range(1, num_convolutions + 1):
            name = f"conv{block}_{index}"
            features = jax.nn.relu(
                _convolve(features, _get(weights, f"{name}/kernel"))
                + _get(weights, f"{name}/bias")
            )
        norm = jnp.sqrt(jnp.square(features).sum(-1, keepdims=True) + 1e-5)
        pred, target = jnp.split(features / norm, 2)
        difference = jnp.square(pred - target)
        maps = _convolve(difference, _get(weights, f"lin{block}/kernel"))
        distances += maps.astype(jnp.float32).mean(axis=(1, 2, 3))
    return distances


def _get(weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in weights:
        raise ValueError(
            f"The weights given to `LpipsVgg` have no {name!r}; they have"
            f" {', '.join(sorted(weights)[:5])}, ..."
        )
    return weights[name]


def _convolve(x: jax.Array, kernel: np.ndarray) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        jnp.asarray(kernel, x.dtype),
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=_PRECISION,
    )


def _max_pool(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )
