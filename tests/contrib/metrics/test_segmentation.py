"""Segmentations that features carry through a video."""

import jax
import numpy as np
import pytest

from kauldron.contrib import metrics

SIZES = {"resolution": (32, 48), "patch_size": (16, 16), "n_max_class": 2}


def _halves(num_frames=4):
    """Features that tell the upper from the lower half, and the labels 1 and 2."""
    row = np.repeat(np.eye(2, 5, dtype=np.float32), 3, axis=0)
    features = np.repeat(row[None], num_frames, axis=0)
    labels = np.ones((num_frames, 20, 30), np.float32)
    labels[:, 10:] = 2
    return features, labels


@pytest.mark.parametrize("radius", [None, 1])
def test_features_that_separate_the_classes_score_1(radius):
    features, labels = _halves()
    metric = metrics.SegmentationJaccard(**SIZES, radius=radius)
    state = jax.jit(metric.get_state)(features=features, gt_segmentations=labels)
    np.testing.assert_allclose(state.compute(), 1.0)


def test_videos_of_a_batch_weigh_the_same():
    features, labels = _halves()
    swapped = np.concatenate([features[:1], features[1:, ::-1]])  # halves change places
    metric = metrics.SegmentationJaccard(**SIZES)
    state = metric.get_state(
        features=np.stack([features, swapped]),
        gt_segmentations=np.stack([labels, labels]),
    )
    np.testing.assert_allclose(state.compute(), 0.5)


def test_only_classes_of_the_video_count():
    features, labels = _halves()
    sizes = {**SIZES, "n_max_class": 10}
    value = metrics.SegmentationJaccard(**sizes)(
        features=features, gt_segmentations=labels
    )
    np.testing.assert_allclose(value, 1.0)


def test_features_must_fill_the_grid():
    features, labels = _halves()
    with pytest.raises(ValueError, match=r"5 cells.*\(2, 3\)"):
        metrics.SegmentationJaccard(**SIZES).get_state(
            features=features[:, :5], gt_segmentations=labels
        )
