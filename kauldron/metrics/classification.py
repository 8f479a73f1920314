"""How often a classifier is right."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, IntOrBool, typechecked
from kauldron.metrics.average_state import AverageState
from kauldron.metrics.metric import Metric


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Accuracy(Metric):
    """Share of examples whose label is predicted.

    Attributes:
      labels: Right classes, integers of shape `*b 1`.
      logits: Scores of shape `*b n`, of which the largest is the prediction; or
      pred_labels: the predicted classes themselves, `*b 1`.
      mask: Weights of the examples, `*b 1`.

    Example:
      >>> import numpy as np
      >>> logits = np.array([[0.1, 0.9], [0.8, 0.2]])
      >>> float(Accuracy()(logits=logits, labels=np.array([[1], [1]])))
      0.5
    """

    labels: kontext.Key = kontext.REQUIRED
    logits: kontext.Key | None = None
    pred_labels: kontext.Key | None = None
    mask: kontext.Key | None = None

    State = AverageState

    def __post_init__(self) -> None:
        if self.logits is not None and self.pred_labels is not None:
            raise ValueError(
                "Accuracy takes either logits or pred_labels, but both are set:"
                f" {self.logits!r} and {self.pred_labels!r}."
            )

    @typechecked
    def get_state(
        self,
        labels: Int["*b 1"],
        logits: Float["*b n"] | None = None,
        pred_labels: Int["*b 1"] | None = None,
        mask: Array | None = None,
    ) -> AverageState:
        if (logits is None) == (pred_labels is None):
            raise ValueError("Accuracy needs either logits or pred_labels.")
        if logits is not None:
            pred_labels = jnp.argmax(logits, axis=-1, keepdims=True)
        return AverageState.from_values(jnp.equal(pred_labels, labels), mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class BinaryAccuracy(Metric):
    """Share of right yes-or-no predictions: yes is a positive logit.

    Attributes:
      logits: Scores of any shape.
      labels: 0 or 1, of the same shape.
      mask: Weights; dimensions missing at the end are filled in.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    State = AverageState

    @typechecked
    def get_state(
        self,
        logits: Float["*any"],
        labels: IntOrBool["*any"],
        mask: Array | None = None,
    ) -> AverageState:
        return AverageState.from_values(jnp.equal(logits > 0, labels), mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Precision1(Metric):
    """Precision at 1: share of examples whose top class is among the right ones.

    Attributes:
      logits: Scores of shape `*b n`.
      labels: 1 for each right class, else 0; floats of shape `*b n`.
      mask: Weights of the examples, `*b 1`.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    State = AverageState

    @typechecked
    def get_state(
        self,
        logits: Float["*b n"],
        labels: Float["*b n"],
        mask: Array | None = None,
    ) -> AverageState:
        top = jnp.argmax(logits, axis=-1, keepdims=True)
        hits = jnp.take_along_axis(jnp.asarray(labels), top, axis=-1)
        return AverageState.from_values(hits, mask=mask)
