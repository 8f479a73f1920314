"""Classification: two classifiers at once, and many yes-or-no decisions."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics import EMPTY, AutoState, AverageState, Metric, concat_field
from kauldron.metrics.averages import align_mask, as_real


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class JointAccuracy(Metric):
    """Share of examples for which both predictions are right.

    Attributes:
      logits_a: Scores of the first classifier, `*b n`.
      labels_a: Its right classes, `*b 1`.
      logits_b: Scores of the second classifier, `*b m`.
      labels_b: Its right classes, `*b 1`.
      mask: Weights of the examples, `*b 1`.
    """

    logits_a: kontext.Key = kontext.REQUIRED
    labels_a: kontext.Key = kontext.REQUIRED
    logits_b: kontext.Key = kontext.REQUIRED
    labels_b: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    State = AverageState

    @typechecked
    def get_state(
        self,
        logits_a: Float["*b n"],
        labels_a: Int["*b 1"],
        logits_b: Float["*b m"],
        labels_b: Int["*b 1"],
        mask: Array | None = None,
    ) -> AverageState:
        right_a = jnp.argmax(logits_a, axis=-1, keepdims=True) == labels_a
        right_b = jnp.argmax(logits_b, axis=-1, keepdims=True) == labels_b
        return AverageState.from_values(right_a & right_b, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class MultilabelAveragePrecision(Metric):
    """Average precision of each class, averaged; a class that does not occur counts as 0.

    Attributes:
      scores: Scores of shape `*b n`.
      labels: Whether the class is right: bool, or 0 and 1; `*b n`.
      mask: Which examples count, `*b 1`.
    """

    scores: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["MultilabelAveragePrecision"]):
        """Scores and labels of all examples, `n c`, and which of them count, `n`."""

        scores: Any = concat_field()
        labels: Any = concat_field()
        counts: Any = concat_field()

        def compute(self) -> Any:
            if self.scores is EMPTY:
                return np.float64(0.0)
            scores, labels = self.scores[self.counts], self.labels[self.counts]
            return np.mean(list(map(average_precision, scores.T, labels.T)))

    @typechecked
    def get_state(
        self, scores: Float["*b n"], labels: Array["*b n"], mask: Array | None = None
    ) -> MultilabelAveragePrecision.State:
        num_classes = scores.shape[-1]
        counts = jnp.ones((*scores.shape[:-1], 1), bool)
        if mask is not None:
            counts &= align_mask(mask, counts.shape) > 0
        return self.State(
            counts=counts.ravel(),
            scores=as_real(scores).reshape(-1, num_classes),
            labels=(jnp.asarray(labels) > 0).reshape(-1, num_classes),
        )


def average_precision(scores: np.ndarray, is_right: np.ndarray) -> Any:
    """Return `Σ (Rₖ - Rₖ₋₁) Pₖ` over decreasing thresholds.

    Args:
      scores: One number per example.
      is_right: Whether the example belongs to the class.

    Returns:
      A number between 0 and 1; 0 if no example belongs to the class.

    Example:
      >>> scores = np.array([0.9, 0.8, 0.7])
      >>> float(average_precision(scores, np.array([True, False, True])).round(3))
      0.833
    """
    if not is_right.any():
        return np.float64(0.0)
    _, group = np.unique(-scores, return_inverse=True)
    hits = np.cumsum(np.bincount(group, is_right))
    predicted = np.cumsum(np.bincount(group))
    recalls = hits / hits[-1]
    return np.sum(np.diff(recalls, prepend=0.0) * hits / predicted)
