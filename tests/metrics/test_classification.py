"""Accuracies against plain numpy."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kauldron import ktyping, metrics

LEADING = [(), (5,), (2, 3)]


def weighted_mean(values: np.ndarray, mask: np.ndarray | None) -> float:
    weights = np.ones(values.shape) if mask is None else mask
    return float((values * weights).sum() / weights.sum())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "leading, dtype",
    [((), np.float32), ((5,), np.float64), ((2, 3), ml_dtypes.bfloat16)],
)
def test_accuracy_matches_numpy(leading, masked, dtype):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(*leading, 4)).astype(dtype)
    labels = rng.integers(0, 4, (*leading, 1))
    mask = rng.uniform(0.1, 1, (*leading, 1)).astype(np.float32) if masked else None
    hits = (logits.astype(np.float64).argmax(-1)[..., None] == labels).astype(float)
    value = metrics.Accuracy()(logits=logits, labels=labels, mask=mask)
    assert value == pytest.approx(weighted_mean(hits, mask), rel=1e-6)


def test_accuracy_of_predicted_labels():
    metric = metrics.Accuracy(pred_labels="p", labels="y")
    context = {"p": np.array([[1], [2], [3]]), "y": np.array([[1], [2], [0]], np.uint8)}
    assert metric(context=context) == pytest.approx(2 / 3)


def test_accuracy_mask_without_the_last_dimension():
    logits, labels = np.eye(3), np.array([[0], [1], [0]])
    mask = np.array([True, False, True])
    assert metrics.Accuracy()(logits=logits, labels=labels, mask=mask) == 0.5


def test_accuracy_refuses_logits_together_with_predicted_labels():
    with pytest.raises(ValueError, match="either logits or pred_labels"):
        metrics.Accuracy(logits="x", pred_labels="y", labels="z")
    with pytest.raises(ValueError, match="either logits or pred_labels"):
        metrics.Accuracy()(
            logits=np.eye(2),
            pred_labels=np.zeros((2, 1), int),
            labels=np.eye(2, 1, dtype=int),
        )


def test_accuracy_without_predictions_is_refused_when_it_is_used():
    metric = metrics.Accuracy(labels="y")
    with pytest.raises(ValueError, match="either logits or pred_labels"):
        metric(context={"y": np.zeros((2, 1), int)})
    with pytest.raises(ValueError, match="either logits or pred_labels"):
        metric(labels=np.zeros((2, 1), int))


@pytest.mark.parametrize(
    "labels", [np.zeros(4, int), np.zeros((4, 2), int), np.ones((4, 1))]
)
def test_accuracy_refuses_labels_of_wrong_shape_or_dtype(labels):
    with pytest.raises(ktyping.KTypeCheckError, match=r"labels"):
        metrics.Accuracy()(logits=np.ones((4, 3)), labels=labels)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "leading, label_dtype", [((), np.int32), ((5,), bool), ((2, 3), np.int32)]
)
def test_binary_accuracy_matches_numpy(leading, masked, label_dtype):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=leading).astype(np.float32)
    labels = rng.integers(0, 2, leading).astype(label_dtype)
    mask = rng.uniform(0.1, 1, leading).astype(np.float32) if masked else None
    hits = np.asarray((logits > 0) == labels.astype(bool), float)
    value = metrics.BinaryAccuracy()(
        logits=np.asarray(logits), labels=np.asarray(labels), mask=mask
    )
    assert value == pytest.approx(weighted_mean(hits, mask), rel=1e-6)


def test_binary_accuracy_has_a_mask_key():
    metric = metrics.BinaryAccuracy(logits="x", labels="y", mask="m")
    context = {
        "x": np.array([1.0, -1.0]),
        "y": np.array([1, 1]),
        "m": np.array([True, False]),
    }
    assert metric(context=context) == 1.0


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("masked", [False, True])
def test_precision_at_1_matches_numpy(leading, masked):
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(*leading, 4)).astype(np.float32)
    labels = rng.integers(0, 2, (*leading, 4)).astype(np.float32)
    mask = rng.uniform(0.1, 1, (*leading, 1)).astype(np.float32) if masked else None
    hits = np.take_along_axis(labels, logits.argmax(-1)[..., None], -1)
    value = metrics.Precision1()(logits=logits, labels=labels, mask=mask)
    assert value == pytest.approx(weighted_mean(hits, mask), rel=1e-6)


def test_accuracy_merged_inside_jit_over_unequal_batches():
    metric = metrics.Accuracy()
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(size=(20, 3)), rng.integers(0, 3, (20, 1))

    @jax.jit
    def add(state, logits, labels):
        return state.merge(metric.get_state(logits=logits, labels=labels))

    state = metric.empty()
    for batch in (slice(0, 3), slice(3, 12), slice(12, 20)):
        state = add(state, jnp.asarray(logits[batch]), jnp.asarray(labels[batch]))
    expected = np.mean(logits.argmax(-1)[:, None] == labels)
    assert state.compute() == pytest.approx(expected)
