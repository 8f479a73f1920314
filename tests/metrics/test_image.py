"""Similarity of images against plain numpy."""

import ml_dtypes
import numpy as np
import pytest

from kauldron import ktyping, metrics

RNG = np.random.default_rng(0)


def images(*shape, dtype=np.float32):
    return RNG.uniform(size=shape).astype(dtype)


def average(values, mask):
    return np.average(
        np.ravel(values), weights=None if mask is None else np.ravel(mask)
    )


#
# PSNR
#


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "leading, vrange", [((), (0.0, 1.0)), ((3,), (-1.0, 3.0)), ((2, 3), (0.0, 1.0))]
)
def test_psnr_matches_numpy(leading, masked, vrange):
    pred, target = images(*leading, 5, 4, 3), images(*leading, 5, 4, 3)
    mask = images(*leading, 1) if masked else None
    mse = np.square(pred.astype(np.float64) - target).mean(axis=(-3, -2, -1))
    expected = average(20 * np.log10(vrange[1] - vrange[0]) - 10 * np.log10(mse), mask)
    value = metrics.Psnr(in_vrange=vrange)(pred=pred, target=target, mask=mask)
    assert value == pytest.approx(expected, rel=1e-5)


def test_psnr_of_equal_images_is_finite():
    image = images(1, 4, 4, 3)
    assert metrics.Psnr()(pred=image, target=image) == pytest.approx(100.0)


def test_psnr_is_clipped_per_image():
    pred = np.zeros((2, 4, 4, 3), np.float32)
    target = np.stack([np.zeros((4, 4, 3)), np.full((4, 4, 3), 0.1)]).astype(np.float32)
    value = metrics.Psnr(clip=40.0)(pred=pred, target=target)
    assert value == pytest.approx((40 + 20) / 2, rel=1e-5)


def test_psnr_of_bfloat16_is_computed_in_float32():
    pred = np.zeros((1, 64, 64, 3), ml_dtypes.bfloat16)
    target = np.full((1, 64, 64, 3), 0.5, ml_dtypes.bfloat16)
    expected = -10 * np.log10(0.25)
    assert metrics.Psnr()(pred=pred, target=target) == pytest.approx(expected, rel=1e-6)


def test_images_of_different_shapes_are_refused_with_both_shapes():
    with pytest.raises(ktyping.KTypeCheckError) as info:
        metrics.Psnr()(pred=images(2, 4, 4, 3), target=images(2, 4, 5, 3))
    assert "np.f32[2 4 4 3]" in str(info.value)
    assert "np.f32[2 4 5 3]" in str(info.value)


#
# SSIM
#


def ssim_of_one(x, y, size=11, sigma=1.5, k1=0.01, k2=0.03):
    """One window at a time, in float64."""
    offsets = np.arange(size) - (size - 1) / 2
    line = np.exp(-(offsets**2) / (2 * sigma**2))
    window = np.outer(line, line) / np.outer(line, line).sum()
    values = []
    for i in range(x.shape[0] - size + 1):
        for j in range(x.shape[1] - size + 1):
            for c in range(x.shape[2]):
                a = x[i : i + size, j : j + size, c]
                b = y[i : i + size, j : j + size, c]
                mean_a, mean_b = (window * a).sum(), (window * b).sum()
                var_a = max((window * a * a).sum() - mean_a**2, 0)
                var_b = max((window * b * b).sum() - mean_b**2, 0)
                cov = (window * a * b).sum() - mean_a * mean_b
                cov = np.sign(cov) * min(np.sqrt(var_a * var_b), abs(cov))
                values.append(
                    (2 * mean_a * mean_b + k1**2)
                    * (2 * cov + k2**2)
                    / ((mean_a**2 + mean_b**2 + k1**2) * (var_a + var_b + k2**2))
                )
    return np.mean(values)


@pytest.mark.parametrize("leading, size", [((), 5), ((2,), 6), ((2, 1), 5)])
def test_ssim_matches_numpy(leading, size):
    pred, target = images(*leading, 8, 9, 2), images(*leading, 8, 9, 2)
    mask = images(*leading, 1)
    expected = average(
        [
            ssim_of_one(x.astype(np.float64), y.astype(np.float64), size=size)
            for x, y in zip(pred.reshape(-1, 8, 9, 2), target.reshape(-1, 8, 9, 2))
        ],
        mask,
    )
    metric = metrics.Ssim(filter_size=size)
    value = metric(pred=pred, target=target, mask=mask)
    assert value == pytest.approx(expected, abs=1e-5)


def test_ssim_has_the_usual_window_by_default():
    pred, target = images(1, 12, 12, 1), images(1, 12, 12, 1)
    expected = ssim_of_one(pred[0].astype(np.float64), target[0].astype(np.float64))
    assert metrics.Ssim()(pred=pred, target=target) == pytest.approx(expected, abs=1e-5)


def test_ssim_rescales_by_the_value_range():
    pred, target = images(1, 12, 12, 1), images(1, 12, 12, 1)
    scaled = metrics.Ssim(in_vrange=(-1.0, 1.0))(
        pred=2 * pred - 1, target=2 * target - 1
    )
    assert scaled == pytest.approx(metrics.Ssim()(pred=pred, target=target), abs=1e-4)


def test_ssim_of_equal_images_is_one():
    image = images(1, 12, 12, 1)
    assert metrics.Ssim()(pred=image, target=image) == pytest.approx(1.0, abs=1e-6)


def test_ssim_of_too_small_images_is_refused():
    with pytest.raises(ValueError, match=r"10 x 20.*filter_size=11"):
        metrics.Ssim()(pred=images(1, 10, 20, 3), target=images(1, 10, 20, 3))


@pytest.mark.parametrize("metric", [metrics.Psnr, metrics.Ssim, metrics.LpipsVgg])
@pytest.mark.parametrize("vrange", [(1, 1), (1, 0), (0,)])
def test_value_range_that_is_none_is_refused_at_construction(metric, vrange):
    with pytest.raises(ValueError, match="in_vrange"):
        metric(in_vrange=vrange)


@pytest.mark.parametrize("option", [{"filter_size": 0}, {"filter_sigma": 0.0}])
def test_filter_without_extent_is_refused_at_construction(option):
    with pytest.raises(ValueError, match="above 0"):
        metrics.Ssim(**option)
