"""Every loss against plain numpy."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import checkify

from kauldron import ktyping, losses

RNG = np.random.default_rng(0)
LEADING = [(), (3,), (2, 3)]
DTYPES = [np.float32, np.float64, ml_dtypes.bfloat16]


def compute(loss, **inputs):
    """The value of a loss, from one compiled program."""
    return jax.jit(loss.get_state)(**inputs).compute()


def values_shape(loss, **inputs):
    return jax.eval_shape(loss.get_values, **inputs).shape


def normal(*shape, dtype=np.float32):
    return np.asarray(RNG.normal(size=shape)).astype(dtype)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    "shape, dtype", [((), np.float32), ((4,), np.float64), ((2, 3), ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize(
    "loss, function",
    [
        (losses.L1(), lambda p, t: np.abs(p - t)),
        (losses.L2(), lambda p, t: np.square(p - t)),
        (
            losses.Huber(delta=0.5),
            lambda p, t: np.where(
                np.abs(p - t) < 0.5, 0.5 * (p - t) ** 2, 0.5 * (np.abs(p - t) - 0.25)
            ),
        ),
    ],
    ids=["L1", "L2", "Huber"],
)
def test_regression_losses_match_numpy(loss, function, shape, dtype):
    preds, targets = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    expected = function(preds.astype(np.float64), targets.astype(np.float64)).mean()
    assert compute(loss, preds=preds, targets=targets) == pytest.approx(
        expected, rel=1e-5
    )


def test_values_and_absolute_values():
    values = normal(3, 4)
    assert compute(losses.Value(), values=values) == pytest.approx(
        values.mean(), rel=1e-5
    )
    value = compute(losses.AbsoluteValue(), values=values)
    assert value == pytest.approx(np.abs(values).mean(), rel=1e-5)


@pytest.mark.parametrize("leading", LEADING)
def test_negative_cosine_similarity_matches_numpy(leading):
    preds, targets = normal(*leading, 5), normal(*leading, 5)
    loss = losses.NegativeCosineSimilarity()
    cosine = (preds * targets).sum(-1) / (
        np.linalg.norm(preds, axis=-1) * np.linalg.norm(targets, axis=-1)
    )
    assert compute(loss, preds=preds, targets=targets) == pytest.approx(
        -cosine.mean(), rel=1e-5
    )
    assert values_shape(loss, preds=preds, targets=targets) == (*leading, 1)


def test_negative_cosine_similarity_has_a_finite_gradient_at_zero():
    loss = losses.NegativeCosineSimilarity()
    value, gradient = jax.value_and_grad(
        lambda p: compute(loss, preds=p, targets=jnp.ones((1, 3)))
    )(jnp.zeros((1, 3)))
    assert value == 0.0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("leading, dtype", list(zip(LEADING, DTYPES)))
def test_softmax_cross_entropy_matches_numpy(leading, dtype):
    logits = normal(*leading, 4, dtype=dtype)
    labels = np.exp(log_softmax(normal(*leading, 4))).astype(np.float32)
    loss = losses.SoftmaxCrossEntropy()
    expected = -(labels * log_softmax(logits)).sum(-1).mean()
    assert compute(loss, logits=logits, labels=labels) == pytest.approx(
        expected, rel=1e-5
    )
    assert values_shape(loss, logits=logits, labels=labels) == (*leading, 1)


@pytest.mark.parametrize(
    "leading, label_dtype", [((), np.int32), ((3,), np.uint8), ((2, 3), np.int32)]
)
def test_softmax_cross_entropy_with_int_labels_matches_numpy(leading, label_dtype):
    logits = normal(*leading, 4)
    labels = RNG.integers(0, 4, (*leading, 1)).astype(label_dtype)
    loss = losses.SoftmaxCrossEntropyWithIntLabels()
    expected = -np.take_along_axis(log_softmax(logits), labels.astype(int), -1).mean()
    assert compute(loss, logits=logits, labels=labels) == pytest.approx(
        expected, rel=1e-5
    )
    assert values_shape(loss, logits=logits, labels=labels) == (*leading, 1)


@pytest.mark.parametrize(
    "label_dtype, labels",
    [
        (np.int8, [-1, 0, 127]),  # fewer numbers than there are classes
        (np.uint8, [0, 200, 255]),
        (np.int32, [-300, -1, 299, 300]),
        (np.uint32, [299, 300, 2**31, 2**32 - 1]),  # -1 in unsigned labels
    ],
)
def test_loss_of_a_label_is_nan_outside_of_the_classes_alone(label_dtype, labels):
    labels = np.array(labels, label_dtype)[:, None]
    logits = normal(len(labels), 300)
    loss = losses.SoftmaxCrossEntropyWithIntLabels()
    values = np.asarray(loss.get_values(jnp.asarray(logits), jnp.asarray(labels)))
    is_class = (labels >= 0) & (labels.astype(int) < 300)
    assert (np.isfinite(values) == is_class).all()
    rows, classes = np.nonzero(is_class)[0], labels[is_class].astype(int)
    expected = -log_softmax(logits)[rows, classes]
    assert values[is_class] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("label_dtype", [np.float32, np.int32, bool])
def test_sigmoid_cross_entropy_matches_numpy(label_dtype):
    logits = normal(3, 4)
    labels = RNG.integers(0, 2, (3, 4)).astype(label_dtype)
    probs, y = 1 / (1 + np.exp(-logits.astype(np.float64))), labels.astype(float)
    expected = -(y * np.log(probs) + (1 - y) * np.log(1 - probs)).mean()
    loss = losses.SigmoidBinaryCrossEntropy()
    assert compute(loss, logits=logits, labels=labels) == pytest.approx(
        expected, rel=1e-5
    )
    assert values_shape(loss, logits=logits, labels=labels) == (3, 4)


def test_large_logits_stay_finite():
    logits = np.array([[1e4, -1e4]], np.float32)
    soft = compute(
        losses.SoftmaxCrossEntropyWithIntLabels(), logits=logits, labels=np.array([[1]])
    )
    assert soft == pytest.approx(2e4)
    sigmoid = compute(
        losses.SigmoidBinaryCrossEntropy(), logits=logits, labels=np.eye(1, 2)
    )
    assert sigmoid == pytest.approx(0.0)


def test_masked_classification_loss_ignores_labels_without_a_class():
    logits, labels = normal(3, 4), np.array([[1], [255], [2]])
    loss = losses.SoftmaxCrossEntropyWithIntLabels()
    value = compute(loss, logits=logits, labels=labels, mask=labels != 255)
    kept = compute(loss, logits=logits[[0, 2]], labels=labels[[0, 2]])
    assert value == pytest.approx(kept, rel=1e-6)


@pytest.mark.parametrize(
    "loss, inputs",
    [
        (losses.L2(), {"preds": np.ones((4, 3)), "targets": np.ones((4, 1))}),
        (losses.L2(), {"preds": np.ones(4, int), "targets": np.ones(4)}),
        (losses.L1(), {"preds": [1.0], "targets": np.ones(1)}),
        (
            losses.SoftmaxCrossEntropyWithIntLabels(),
            {"logits": np.ones((4, 3)), "labels": np.ones(4, int)},
        ),
        (
            losses.SoftmaxCrossEntropy(),
            {"logits": np.ones((4, 3)), "labels": np.ones((4, 3), int)},
        ),
    ],
)
def test_inputs_of_wrong_kind_or_shape_are_refused(loss, inputs):
    with pytest.raises(ktyping.KTypeCheckError, match="argument"):
        loss(**inputs)


def test_cross_entropy_is_differentiated_under_all_run_time_checks():
    loss = losses.SoftmaxCrossEntropyWithIntLabels(logits="a", labels="b")
    labels = np.array([[0], [2]])

    def total(logits):
        return loss.get_values(logits, labels).sum()

    gradient = checkify.checkify(jax.grad(total), errors=checkify.all_checks)
    error, result = jax.jit(gradient)(np.zeros((2, 3), np.float32))
    error.throw()
    np.testing.assert_allclose(result, 1 / 3 - np.eye(3)[[0, 2]], atol=1e-6)
