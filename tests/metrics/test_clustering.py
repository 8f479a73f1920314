"""The adjusted Rand index against scikit-learn."""

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from kauldron import metrics

RNG = np.random.default_rng(0)


def ari(num=4, **kwargs):
    return metrics.Ari(num_instances_true=num, num_instances_pred=num, **kwargs)


def segments(*shape, num=4):
    return RNG.integers(0, num, (*shape, 1))


def test_identical_segmentations_give_one():
    labels = segments(2, 3, 4, 5)
    assert ari()(predictions=labels, labels=labels) == 1.0


def test_permuted_ids_give_one():
    labels = segments(2, 3, 4, 5)
    permuted = np.array([2, 0, 3, 1])[labels]
    assert ari()(predictions=permuted, labels=labels) == pytest.approx(1.0)


def test_independent_segmentations_give_about_zero():
    value = ari()(predictions=segments(1, 1, 64, 64), labels=segments(1, 1, 64, 64))
    assert abs(value) < 0.02


@pytest.mark.parametrize("leading", [(), (3,), (2, 2)])
def test_matches_scikit_learn(leading):
    labels = segments(*leading, 2, 4, 5)
    # Mostly right, so that the index is far from 0 and 1.
    noise = segments(*leading, 2, 4, 5)
    predictions = np.where(RNG.uniform(size=labels.shape) < 0.7, labels, noise)
    mask = RNG.uniform(0.1, 1, (*leading, 1)).astype(np.float32)
    values = [
        sklearn.metrics.adjusted_rand_score(true.ravel(), pred.ravel())
        for true, pred in zip(
            labels.reshape(-1, 40), predictions.reshape(-1, 40), strict=True
        )
    ]
    value = ari()(predictions=predictions, labels=labels, mask=mask)
    assert value == pytest.approx(np.average(values, weights=mask.ravel()), abs=1e-5)


@pytest.mark.parametrize("ignored", [0, [0], (0, 3)])
def test_ignored_ids_do_not_count(ignored):
    labels, predictions = segments(1, 2, 4, 5), segments(1, 2, 4, 5)
    kept = ~np.isin(labels, ignored)
    expected = sklearn.metrics.adjusted_rand_score(labels[kept], predictions[kept])
    value = ari(ignored_ids=ignored)(predictions=predictions, labels=labels)
    assert value == pytest.approx(expected, abs=1e-5)


def test_one_segment_in_both_gives_one():
    zeros = np.zeros((1, 2, 4, 5, 1), int)
    assert ari()(predictions=zeros, labels=zeros) == 1.0


def test_mask_selects_batch_elements():
    labels, noise = segments(2, 1, 8, 8), segments(2, 1, 8, 8)
    predictions = np.stack([labels[0], noise[1]])
    value = ari()(predictions=predictions, labels=labels, mask=np.array([[1], [0]]))
    assert value == pytest.approx(1.0, rel=1e-5)


def test_unsigned_ids_on_the_device():
    labels = jnp.asarray(segments(2, 1, 4, 4), jnp.uint8)
    assert ari()(predictions=labels, labels=labels) == 1.0
