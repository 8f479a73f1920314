"""How well a segmentation groups what belongs together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Int, typechecked
from kauldron.metrics.averages import AverageState
from kauldron.metrics.metric import Metric


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Ari(Metric):
    """Adjusted Rand index of segmentations, averaged over the batch.

    1 for the same grouping (whatever the ids), about 0 for independent ones.

    Attributes:
      predictions: Predicted ids, integers of shape `*b t h w 1`.
      labels: True ids of the same shape.
      mask: Weights of the batch elements, `*b 1`.
      num_instances_true: Number of true ids.
      num_instances_pred: Number of predicted ids.
      ignored_ids: True id or ids whose pixels do not count, such as a background.

    References:
      Hubert and Arabie, Comparing partitions (1985).
    """

    predictions: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    num_instances_true: int
    num_instances_pred: int
    ignored_ids: int | Sequence[int] | None = None

    State = AverageState

    @typechecked
    def get_state(
        self,
        predictions: Int["*b t h w 1"],
        labels: Int["*b t h w 1"],
        mask: Array | None = None,
    ) -> AverageState:
        values = self._index(predictions[..., 0], labels[..., 0])
        return AverageState.from_values(values, mask=mask)

    @functools.partial(jax.jit, static_argnums=0)
    def _index(self, predictions: Any, labels: Any) -> jax.Array:
        """Index of each batch element, `*b 1`."""
        true = jax.nn.one_hot(labels, self.num_instances_true)
        pred = jax.nn.one_hot(predictions, self.num_instances_pred)
        if self.ignored_ids is not None:
            true *= ~np.isin(np.arange(self.num_instances_true), self.ignored_ids)
        return _adjusted_rand(true, pred)[..., None]


def _adjusted_rand(true: jax.Array, pred: jax.Array) -> jax.Array:
    """Index of one-hot groupings `*b t h w c` and `*b t h w k`."""
    contingency = jnp.einsum(
        "...thwc,...thwk->...ck", true, pred, precision=jax.lax.Precision.HIGHEST
    )
    true_sizes, pred_sizes = contingency.sum(-1), contingency.sum(-2)
    count = true_sizes.sum(-1)
    together = _pairs(contingency).sum((-2, -1))
    true_pairs, pred_pairs = _pairs(true_sizes).sum(-1), _pairs(pred_sizes).sum(-1)
    expected = true_pairs * (pred_pairs / jnp.maximum(_pairs(count), 1))
    range_ = (true_pairs + pred_pairs) / 2 - expected
    is_trivial = range_ == 0
    index = (together - expected) / jnp.where(is_trivial, 1, range_)
    return jnp.where(is_trivial, 1.0, index)


def _pairs(count: jax.Array) -> jax.Array:
    return count * (count - 1)
