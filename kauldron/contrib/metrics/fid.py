"""Fréchet distance of images from stored statistics of others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np
from etils import epath

from kauldron import kontext
from kauldron.ktyping import Array, Float, typechecked
from kauldron.metrics import AutoState, Metric, concat_field


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class FidWithStats(Metric):
    """Fréchet distance of the features of images from stored statistics.

    The network and its weights are not part of the package: `feature_fn` is yours, such
    as the pool layer of an Inception network for the usual score.

    Attributes:
      pred: Images of shape `*b h w c`.
      reference_stats_loader: Called once; gives `{"mean": d, "cov": d d}` of the features
        of the reference images.
      mask: Not supported.
      in_vrange: Range of the images.
      cns_dump_file: Path of an `.npy` file to write the features to.
      feature_fn: From images `b h w c` with values from 0 to 255 to features `b d`.

    References:
      Heusel et al., [GANs trained by a two time-scale update
      rule](https://arxiv.org/abs/1706.08500), 2017
    """

    pred: kontext.Key = kontext.REQUIRED
    reference_stats_loader: Callable[[], Mapping[str, Any]]
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    cns_dump_file: epath.PathLike | None = None
    feature_fn: Callable[[Any], Any] | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["FidWithStats"]):
        """The features, `n d`."""

        features: Any = concat_field()

        def compute(self) -> float:
            features = np.asarray(self.features, np.float64)
            if self.parent.cns_dump_file is not None:
                with epath.Path(self.parent.cns_dump_file).open("wb") as file:
                    np.save(file, features)
            reference = self.parent.reference_stats
            cov = np.atleast_2d(np.cov(features, rowvar=False))
            return frechet_distance(
                features.mean(axis=0), cov, reference["mean"], reference["cov"]
            )

    @functools.cached_property
    def reference_stats(self) -> Mapping[str, Any]:
        """Mean and covariance of the reference images."""
        return self.reference_stats_loader()

    @typechecked
    def get_state(
        self, pred: Float["*b h w c"], mask: Array | None = None
    ) -> FidWithStats.State:
        if mask is not None:
            raise ValueError("FidWithStats takes no mask: every image counts.")
        if self.feature_fn is None:
            raise ValueError(
                "FidWithStats needs `feature_fn`, from images (0 to 255) to features: "
                "the network and its weights are not part of the package."
            )
        low, high = self.in_vrange
        images = jnp.clip((pred - low) / (high - low), 0, 1) * 255
        return self.State(
            features=self.feature_fn(images.reshape(-1, *images.shape[-3:]))
        )


def frechet_distance(mean_a: Any, cov_a: Any, mean_b: Any, cov_b: Any) -> float:
    """Return the squared Fréchet distance of two normal distributions.

    Args:
      mean_a: Mean of the first, `d`.
      cov_a: Its covariance, `d d`.
      mean_b: Mean of the second.
      cov_b: Its covariance.

    Example:
      >>> float(frechet_distance(np.zeros(2), np.eye(2), np.array([1, 0]), 4 * np.eye(2)))
      3.0
    """
    root = _square_root(np.asarray(cov_a, np.float64))
    # The product of the covariances has the eigenvalues of this symmetric matrix.
    between = np.linalg.eigvalsh(root @ cov_b @ root)
    trace = np.trace(cov_a) + np.trace(cov_b) - 2 * np.sqrt(between.clip(0)).sum()
    return float(np.sum((np.asarray(mean_a) - mean_b) ** 2) + trace)


def _square_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values.clip(0))) @ vectors.T
