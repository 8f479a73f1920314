"""Linear classifiers in closed form, for many strengths of regularisation at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_CONSTANT_FEATURE = 100.0
_SMALLEST_STD = 1e-5


def fit_and_score(
    features: np.ndarray,
    labels: np.ndarray,
    evaluated: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    num_classes: int,
    l2_regs: Sequence[float],
) -> list[list[float]]:
    """Fit ridge regressions to one-hot targets, and measure their accuracy.

    Args:
      features: Training features `n d`; they also give the scale of all others.
      labels: Training labels `n`.
      evaluated: Pairs of features and labels to classify.
      num_classes: Number of classes.
      l2_regs: Strengths of the regularisation.

    Returns:
      Accuracy for each pair, for each strength.
    """
    features = features.astype(np.float64)
    mean, std = features.mean(0), features.std(0) + _SMALLEST_STD
    train = _standardize(features, mean, std)
    targets = np.where(labels[:, None] == np.arange(num_classes), 1.0, -1.0)
    weights = _ridge_weights(train, targets, l2_regs)
    return [
        [_accuracy(_standardize(x, mean, std) @ w, y) for w in weights]
        for x, y in evaluated
    ]


def _standardize(features: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    scaled = (features.astype(np.float64) - mean) / std
    constant = np.full((len(features), 1), _CONSTANT_FEATURE)
    return np.concatenate([scaled, constant], axis=1)


def _ridge_weights(
    x: np.ndarray, y: np.ndarray, l2_regs: Sequence[float]
) -> list[np.ndarray]:
    """Weights for each strength, from one eigen-decomposition of the smaller matrix."""
    if len(x) <= x.shape[1]:
        values, vectors = np.linalg.eigh(x @ x.T)
        left, right = x.T @ vectors, vectors.T @ y
    else:
        values, vectors = np.linalg.eigh(x.T @ x)
        left, right = vectors, vectors.T @ (x.T @ y)
    return [left @ (right / (values + l2)[:, None]) for l2 in l2_regs]


def _accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == labels).mean())
