"""Two classifiers that must be right together."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.metrics import AverageState, Metric


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
