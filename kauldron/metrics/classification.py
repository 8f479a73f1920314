"""How often a classifier is right, and how well it ranks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.ktyping import Array, Float, Int, IntOrBool, typechecked
from kauldron.metrics.auto_state import AutoState, concat_field
from kauldron.metrics.averages import AverageState, align_mask, as_real
from kauldron.metrics.metric import Metric
from kauldron.metrics.state import EMPTY


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
            raise ValueError(
                "Accuracy needs either logits or pred_labels: set one of the keys, such as "
                "`Accuracy(logits='preds.logits', labels='batch.label')`."
            )
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


#
# Area under the ROC curve
#


_MODES = ("ovr", "ovo")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class RocAuc(Metric):
    """Area under the ROC curve.

    That is the probability that an example of a class has a higher score for this class
    than an example of another one. Scores are softmax probabilities over the used
    classes. Two classes: the area of the second. More: the mean over classes of one
    against the rest (`"ovr"`), or over pairs of classes (`"ovo"`, both directions of a
    pair averaged). A class that does not occur is left out; with fewer than two classes
    the value is 0.

    Attributes:
      logits: Scores of shape `*b n`.
      labels: Right classes, integers of shape `*b 1`.
      mask: Weights of the examples, `*b 1`.
      unique_labels: The used classes; those that occur, if not given.
      multi_class_mode: `"ovr"` or `"ovo"`.

    References:
      Hand and Till, A simple generalisation of the area under the ROC curve for
      multiple class classification problems (2001).
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    unique_labels: Sequence[int] | None = None
    multi_class_mode: str = "ovr"

    def __post_init__(self) -> None:
        if self.multi_class_mode not in _MODES:
            raise ValueError(
                f"multi_class_mode must be one of {_MODES}, not"
                f" {self.multi_class_mode!r}."
            )

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["RocAuc"]):
        """Probabilities `n c`, labels `n` and weights `n` of all examples."""

        probs: Any = concat_field()
        labels: Any = concat_field()
        weights: Any = concat_field()

        def compute(self) -> Any:
            if self.probs is EMPTY:
                return np.float64(0.0)
            return _roc_auc(
                self.probs.astype(np.float64),
                self.labels,
                self.weights.astype(np.float64),
                self.parent.unique_labels,
                self.parent.multi_class_mode,
            )

    @typechecked
    def get_state(
        self,
        logits: Float["*b n"],
        labels: Int["*b 1"],
        mask: Array | None = None,
    ) -> RocAuc.State:
        probs, labels, weights = _flatten_batch(logits, labels, mask)
        return self.State(probs=probs, labels=labels, weights=weights)


@jax.jit
def _flatten_batch(logits: Any, labels: Any, mask: Any) -> tuple[jax.Array, ...]:
    """Return probabilities `n c`, labels `n` and weights `n`."""
    probs = jax.nn.softmax(as_real(logits), axis=-1)
    weights = jnp.ones(labels.shape, probs.dtype)
    if mask is not None:
        weights *= align_mask(mask, labels.shape).astype(probs.dtype)
    return probs.reshape(-1, probs.shape[-1]), labels.ravel(), weights.ravel()


def _roc_auc(
    probs: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    unique_labels: Sequence[int] | None,
    mode: str,
) -> Any:
    counted = weights > 0
    if unique_labels:
        counted &= np.isin(labels, unique_labels)
    probs, labels, weights = probs[counted], labels[counted], weights[counted]
    present = np.unique(labels)
    used = np.asarray(sorted(set(unique_labels))) if unique_labels else present
    if len(present) < 2:
        return np.float64(0.0)
    _check_labels(used, probs.shape[-1])
    probs = _normalize(probs[:, used])
    if len(used) == 2:
        return binary_auc(probs[:, 1], labels == used[1], weights)
    one_hot = labels[:, None] == used
    areas = _one_vs_rest if mode == "ovr" else _one_vs_one
    return np.mean(list(areas(probs, one_hot, weights)))


def _normalize(probs: np.ndarray) -> np.ndarray:
    """Rows that sum to 1, in float32: finer differences are noise that breaks ties."""
    total = probs.sum(axis=-1, keepdims=True)
    return (probs / np.where(total > 0, total, 1)).astype(np.float32)


def _check_labels(used: np.ndarray, num_classes: int) -> None:
    if used.min() < 0 or used.max() >= num_classes:
        raise ValueError(
            f"RocAuc: labels {used.tolist()} do not fit logits of {num_classes} classes."
        )


def _one_vs_rest(probs: np.ndarray, one_hot: np.ndarray, weights: np.ndarray) -> Any:
    for scores, is_class in zip(probs.T, one_hot.T):
        if is_class.any() and not is_class.all():
            yield binary_auc(scores, is_class, weights)


def _one_vs_one(probs: np.ndarray, one_hot: np.ndarray, weights: np.ndarray) -> Any:
    for first, second in itertools.combinations(range(one_hot.shape[1]), 2):
        in_pair = one_hot[:, first] | one_hot[:, second]
        if one_hot[:, first].any() and one_hot[:, second].any():
            yield 0.5 * sum(
                binary_auc(probs[in_pair, c], one_hot[in_pair, c], weights[in_pair])
                for c in (first, second)
            )


def binary_auc(scores: np.ndarray, is_positive: np.ndarray, weights: np.ndarray) -> Any:
    """Return the weighted share of (positive, negative) pairs in the right order.

    A tie counts as half a pair.

    Example:
      >>> scores = np.array([0.1, 0.4, 0.4, 0.8])
      >>> float(binary_auc(scores, np.array([0, 1, 0, 1], bool), np.ones(4)))
      0.875
    """
    _, group = np.unique(scores, return_inverse=True)
    positives = np.bincount(group, weights * is_positive)
    negatives = np.bincount(group, weights * ~is_positive)
    negatives_below = np.cumsum(negatives) - negatives
    ordered = np.sum(positives * (negatives_below + 0.5 * negatives))
    return ordered / (positives.sum() * negatives.sum())
