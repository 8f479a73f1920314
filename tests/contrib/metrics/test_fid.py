"""Fréchet distance of images from stored statistics."""

import numpy as np
import pytest

from kauldron.contrib import metrics
from kauldron.contrib.metrics.fid import frechet_distance

IMAGES = np.random.default_rng(0).uniform(size=(40, 2, 2, 1)).astype(np.float32)


def _pixels(images):
    return images.reshape(len(images), -1)


def _stats(images):
    pixels = 255.0 * _pixels(images).astype(np.float64)
    return {"mean": pixels.mean(0), "cov": np.cov(pixels, rowvar=False)}


def _metric(loader=lambda: _stats(IMAGES), **kwargs):
    return metrics.FidWithStats(
        reference_stats_loader=loader, **{"feature_fn": _pixels, **kwargs}
    )


def test_distance_of_normal_distributions():
    value = frechet_distance(np.zeros(2), np.eye(2), np.array([1, 0]), 4 * np.eye(2))
    np.testing.assert_allclose(value, 3.0)


def test_same_images_have_no_distance_and_batches_are_merged():
    metric = _metric()
    parts = [metric.get_state(pred=part) for part in (IMAGES[:10], IMAGES[10:])]
    merged = parts[0].merge(parts[1]).finalize()
    np.testing.assert_allclose(merged.compute(), 0, atol=0.01)


def test_brighter_images_are_further_away():
    value = _metric(in_vrange=(0.0, 2.0))(pred=IMAGES)
    reference, half = _stats(IMAGES), _stats(IMAGES / 2)
    expected = frechet_distance(
        half["mean"], half["cov"], reference["mean"], reference["cov"]
    )
    np.testing.assert_allclose(value, expected, rtol=1e-3)


def test_statistics_are_loaded_once_and_features_written(tmp_path):
    calls = []
    metric = _metric(
        lambda: calls.append(1) or _stats(IMAGES), cns_dump_file=tmp_path / "x.npy"
    )
    metric(pred=IMAGES), metric(pred=IMAGES)
    assert len(calls) == 1
    np.testing.assert_allclose(
        np.load(tmp_path / "x.npy"), 255 * _pixels(IMAGES), rtol=1e-5
    )


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="feature_fn"):
        _metric(feature_fn=None)(pred=IMAGES)
    with pytest.raises(ValueError, match="mask"):
        _metric().get_state(pred=IMAGES, mask=np.ones(40))
