"""The usual losses for regression and classification."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, typechecked
from kauldron.losses.loss import Loss
from kauldron.metrics.averages import as_real

#
# Regression
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Value(Loss):
    """The values themselves, such as a loss that the model computes.

    Attributes:
      values: Values of any shape.
    """

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Float["*a"]) -> Float["*a"]:
        return as_real(values)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class AbsoluteValue(Loss):
    """Absolute values, such as a penalty on activations.

    Attributes:
      values: Values of any shape.
    """

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Float["*a"]) -> Float["*a"]:
        return jnp.abs(as_real(values))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class L1(Loss):
    """Absolute error.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        return jnp.abs(as_real(preds) - as_real(targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class L2(Loss):
    """Squared error.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.

    Example:
      >>> import numpy as np
      >>> float(L2()(preds=np.array([1.0, 5.0]), targets=np.array([1.0, 3.0])))
      2.0
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        return jnp.square(as_real(preds) - as_real(targets))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class Huber(Loss):
    """Squared error near zero, absolute error beyond.

    Attributes:
      preds: Predictions of any shape.
      targets: Targets of the same shape.
      delta: Where the one turns into the other.

    References:
      Huber, Robust estimation of a location parameter (1964).
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    delta: float = 1.0

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        error = jnp.abs(as_real(preds) - as_real(targets))
        quadratic = jnp.minimum(error, self.delta)
        return 0.5 * quadratic**2 + self.delta * (error - quadratic)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class NegativeCosineSimilarity(Loss):
    """Minus the cosine of the angle between two vectors.

    Attributes:
      preds: Vectors of shape `*a c`.
      targets: Vectors of the same shape.
      eps: Added to lengths before dividing by them.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    eps: float = 1e-8

    @typechecked
    def get_values(self, preds: Float["*a c"], targets: Float["*a c"]) -> Float["*a 1"]:
        preds, targets = (_normalize(as_real(x), self.eps) for x in (preds, targets))
        return -jnp.sum(preds * targets, axis=-1, keepdims=True)


def _normalize(vectors: jax.Array, eps: float) -> jax.Array:
    """Scale to length 1; a zero vector stays zero, with a finite gradient."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    lengths = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return vectors / (lengths + eps)


#
# Classification
#


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SoftmaxCrossEntropy(Loss):
    """Cross entropy with a distribution over classes.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: Probabilities, or one-hot classes, of the same shape.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Float["*a n"]) -> Float["*a 1"]:
        log_probs = jax.nn.log_softmax(as_real(logits), axis=-1)
        return -jnp.sum(as_real(labels) * log_probs, axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SoftmaxCrossEntropyWithIntLabels(Loss):
    """Cross entropy with the right class.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: Right classes, integers of shape `*a 1`. The loss of a label outside of
        the classes is NaN, unless it is masked out.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Int["*a 1"]) -> Float["*a 1"]:
        log_probs = jax.nn.log_softmax(as_real(logits), axis=-1)
        # A mask instead of an index: `checkify.index_checks` cannot differentiate the
        # latter, and negative labels would count from the end.
        is_right = jnp.arange(log_probs.shape[-1]) == labels
        log_prob = jnp.where(is_right, log_probs, 0).sum(axis=-1, keepdims=True)
        return -jnp.where(is_right.any(axis=-1, keepdims=True), log_prob, jnp.nan)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class SigmoidBinaryCrossEntropy(Loss):
    """Cross entropy of independent yes-or-no decisions.

    Attributes:
      logits: Scores of shape `*a n`.
      labels: 0, 1 or a probability, of the same shape and any dtype.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Float["*a n"], labels: Array["*a n"]) -> Float["*a n"]:
        logits, labels = as_real(logits), as_real(labels)
        return -labels * jax.nn.log_sigmoid(logits) - (1 - labels) * jax.nn.log_sigmoid(
            -logits
        )
