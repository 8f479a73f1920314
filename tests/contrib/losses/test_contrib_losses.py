"""The losses of `kd.contrib` against plain numpy."""

import numpy as np
import pytest

from kauldron.contrib import losses

RNG = np.random.default_rng(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_dice_loss_matches_numpy():
    preds = RNG.normal(size=(2, 4, 5, 3))
    targets = RNG.integers(0, 2, (2, 4, 5, 3)).astype(np.float32)
    probs = sigmoid(preds)
    overlap = (2 * (probs * targets).sum((1, 2)) + 1) / (
        probs.sum((1, 2)) + targets.sum((1, 2)) + 1
    )
    loss = losses.DiceLoss()
    assert loss(preds=preds, targets=targets) == pytest.approx((1 - overlap).mean())
    assert loss.get_values(preds=preds, targets=targets).shape == (2, 3)


@pytest.mark.parametrize("alpha", [0.5, 0.25, -1])
def test_focal_loss_matches_numpy(alpha):
    preds = RNG.normal(size=(6,))
    targets = RNG.integers(0, 2, 6)
    probs = sigmoid(preds)
    right = np.where(targets == 1, probs, 1 - probs)
    weights = np.where(targets == 1, alpha, 1 - alpha) if alpha >= 0 else 1.0
    expected = (-weights * np.log(right) * (1 - right) ** 2).mean()
    value = losses.SigmoidFocalLoss(alpha=alpha)(preds=preds, targets=targets)
    assert value == pytest.approx(expected, rel=1e-5)


def test_focal_loss_without_focus_is_the_cross_entropy():
    preds, targets = np.array([0.3, -2.0]), np.array([1.0, 0.0])
    loss = losses.SigmoidFocalLoss(alpha=-1, gamma=0)
    probs = sigmoid(preds)
    expected = -(np.log(probs[0]) + np.log(1 - probs[1])) / 2
    assert loss(preds=preds, targets=targets) == pytest.approx(expected, rel=1e-5)


def test_weighted_l1_scales_the_background_and_drops_what_is_hidden():
    preds, targets = np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros((2, 2))
    loss = losses.WeightedL1(ratio_value=0.1)
    values = loss.get_values(
        preds=preds,
        targets=targets,
        visible=np.array([[1.0], [0.0]]),
        bg_mask=np.array([[True, False], [True, False]]),
    )
    np.testing.assert_allclose(values, [[0.1, 2.0], [0.0, 0.0]], rtol=1e-6)
    assert loss(preds=preds, targets=targets) == 2.5
