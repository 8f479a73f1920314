"""Accuracy, precision, area under the ROC curve."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from kauldron import ktyping, metrics
from kauldron.metrics.classification import binary_auc

#
# Right or wrong
#


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


#
# Area under the ROC curve
#


def pairwise_auc(scores, is_positive, weights):
    """Share of (positive, negative) pairs in right order, one pair at a time."""
    right = total = 0.0
    for i, j in itertools.product(range(len(scores)), repeat=2):
        if is_positive[i] and not is_positive[j]:
            weight = weights[i] * weights[j]
            total += weight
            right += weight * (
                1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
            )
    return right / total


def softmax(logits):
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def data(num_classes, seed=0, size=40):
    rng = np.random.default_rng(seed)
    # Few distinct rows, so that there are ties.
    rows = rng.normal(size=(8, num_classes)).astype(np.float32)
    logits = rows[rng.integers(0, 8, size)]
    labels = rng.integers(0, num_classes, (size, 1))
    mask = rng.integers(0, 3, (size, 1)).astype(np.float32)
    return logits, labels, mask


@pytest.mark.parametrize("masked", [False, True])
def test_binary_area_matches_brute_force(masked):
    logits, labels, mask = data(2)
    mask = mask if masked else np.ones_like(mask)
    value = metrics.RocAuc()(logits=logits, labels=labels, mask=mask)
    expected = pairwise_auc(softmax(logits)[:, 1], labels[:, 0] == 1, mask[:, 0])
    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_one_vs_rest_matches_brute_force(masked):
    logits, labels, mask = data(3)
    mask = mask if masked else np.ones_like(mask)
    value = metrics.RocAuc()(logits=logits, labels=labels, mask=mask)
    probs = softmax(logits)
    areas = [pairwise_auc(probs[:, c], labels[:, 0] == c, mask[:, 0]) for c in range(3)]
    assert value == pytest.approx(np.mean(areas), abs=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_one_vs_one_matches_brute_force(masked):
    logits, labels, mask = data(3)
    mask = mask if masked else np.ones_like(mask)
    metric = metrics.RocAuc(multi_class_mode="ovo")
    probs, labels_1d, areas = softmax(logits), labels[:, 0], []
    for a, b in itertools.combinations(range(3), 2):
        rows = np.isin(labels_1d, [a, b])
        for c in (a, b):
            areas.append(
                pairwise_auc(probs[rows, c], labels_1d[rows] == c, mask[rows, 0])
            )
    value = metric(logits=logits, labels=labels, mask=mask)
    assert value == pytest.approx(np.mean(areas), abs=1e-6)


@pytest.mark.parametrize("mode", ["ovr", "ovo"])
@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_matches_scikit_learn(mode, num_classes):
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(200, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, (200, 1))
    value = metrics.RocAuc(multi_class_mode=mode)(logits=logits, labels=labels)
    probs = softmax(logits.astype(np.float64))
    expected = sklearn.metrics.roc_auc_score(
        labels[:, 0],
        probs[:, 1] if num_classes == 2 else probs,
        multi_class=mode,
    )
    assert value == pytest.approx(expected, abs=1e-5)


@given(
    scores=st.lists(st.integers(0, 4), min_size=4, max_size=30),
    seed=st.integers(0, 1000),
)
def test_binary_area_matches_scikit_learn_with_ties_and_weights(scores, seed):
    rng = np.random.default_rng(seed)
    scores = np.array(scores, float)
    is_positive = rng.integers(0, 2, len(scores)).astype(bool)
    is_positive[:2] = [True, False]
    weights = rng.uniform(0.1, 2, len(scores))
    expected = sklearn.metrics.roc_auc_score(is_positive, scores, sample_weight=weights)
    assert binary_auc(scores, is_positive, weights) == pytest.approx(expected)


def test_single_class_gives_zero():
    value = metrics.RocAuc()(logits=np.eye(3), labels=np.zeros((3, 1), int))
    assert value == 0.0


def test_second_class_that_is_masked_out_does_not_count():
    labels, mask = np.array([[0], [0], [1]]), np.array([[1], [1], [0]])
    assert metrics.RocAuc()(logits=np.eye(3, 2), labels=labels, mask=mask) == 0.0


def test_no_data_gives_zero():
    assert metrics.RocAuc().empty().compute() == 0.0


def test_leading_dimensions_are_flattened():
    logits, labels, mask = data(3)
    flat = metrics.RocAuc()(logits=logits, labels=labels, mask=mask)
    deep = metrics.RocAuc()(
        logits=logits.reshape(5, 8, 3),
        labels=labels.reshape(5, 8, 1),
        mask=mask.reshape(5, 8, 1),
    )
    assert deep == flat


def test_unique_labels_with_an_absent_class_leave_it_out():
    logits, labels, _ = data(3)
    labels = labels % 2
    value = metrics.RocAuc(unique_labels=[0, 1, 2])(logits=logits, labels=labels)
    probs = softmax(logits)
    ones = np.ones(len(labels))
    expected = [pairwise_auc(probs[:, c], labels[:, 0] == c, ones) for c in (0, 1)]
    assert value == pytest.approx(np.mean(expected), abs=1e-6)


def test_unique_labels_restrict_the_classes():
    logits, labels, _ = data(4)
    value = metrics.RocAuc(unique_labels=(1, 3))(logits=logits, labels=labels)
    rows = np.isin(labels[:, 0], [1, 3])
    probs = softmax(logits[rows][:, [1, 3]])
    expected = pairwise_auc(probs[:, 1], labels[rows, 0] == 3, np.ones(rows.sum()))
    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mode", ["ovr", "ovo"])
def test_merged_batches_give_the_area_of_all(mode):
    logits, labels, mask = data(3)
    metric = metrics.RocAuc(multi_class_mode=mode)
    state = metric.empty()
    for rows in (slice(0, 7), slice(7, 30), slice(30, 40)):
        state = state.merge(
            metric.get_state(logits=logits[rows], labels=labels[rows], mask=mask[rows])
        )
    assert state.compute() == metric(logits=logits, labels=labels, mask=mask)


def test_unknown_mode_is_refused_at_construction():
    with pytest.raises(ValueError, match=r"'ovx'"):
        metrics.RocAuc(multi_class_mode="ovx")


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(ValueError, match=r"labels \[0, 5\].*2 classes"):
        metrics.RocAuc()(logits=np.eye(2), labels=np.array([[0], [5]]))


def test_list_of_labels_has_a_hash():
    assert hash(metrics.RocAuc(unique_labels=[0, 1])) == hash(
        metrics.RocAuc(unique_labels=(0, 1))
    )
