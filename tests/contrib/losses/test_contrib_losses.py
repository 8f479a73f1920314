"""The losses of `kd.contrib` against plain numpy."""

import dataclasses

import jax
import numpy as np
import pytest

from kauldron.contrib import losses
from tests.metrics.values import value_of

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
    value = value_of(loss, preds=preds, targets=targets)
    assert value == pytest.approx((1 - overlap).mean())
    half = jax.jit(loss.get_values)(preds=preds, targets=targets > 0, num_objects=2)
    half = np.asarray(half)
    np.testing.assert_allclose(half[:, 0, 0], (1 - overlap) / 2, rtol=1e-5)
    mask = np.array([1.0, 0.0]).reshape(2, 1, 1, 1)
    mask = np.broadcast_to(mask, (2, 4, 5, 1))
    masked = value_of(loss, preds=preds, targets=targets, mask=mask)
    assert masked == pytest.approx((1 - overlap[0]).mean())


@pytest.mark.parametrize("alpha", [0.5, 0.25, -1])
def test_focal_loss_matches_numpy(alpha):
    preds = RNG.normal(size=(6,))
    targets = RNG.integers(0, 2, 6)
    probs = sigmoid(preds)
    right = np.where(targets == 1, probs, 1 - probs)
    weights = np.where(targets == 1, alpha, 1 - alpha) if alpha >= 0 else 1.0
    expected = (-weights * np.log(right) * (1 - right) ** 2).mean()
    loss = losses.SigmoidFocalLoss(alpha=alpha)
    half = losses.SigmoidFocalLoss(alpha=alpha, num_objects="n")
    half = dataclasses.replace(half, preds="x", targets="y")

    @jax.jit
    def get_states(preds, targets):
        context = {"x": preds, "y": targets, "n": np.float32(2)}
        return (
            loss.get_state(preds=preds, targets=targets),
            half.get_state_from_context(context),
        )

    state, state_of_half = get_states(preds, targets)
    assert state.compute() == pytest.approx(expected, rel=1e-5)
    assert state_of_half.compute() == pytest.approx(expected / 2, rel=1e-5)


def test_focal_loss_without_focus_is_the_cross_entropy():
    preds, targets = np.array([0.3, -2.0]), np.array([1.0, 0.0])
    loss = losses.SigmoidFocalLoss(alpha=-1, gamma=0)
    probs = sigmoid(preds)
    expected = -(np.log(probs[0]) + np.log(1 - probs[1])) / 2
    value = value_of(loss, preds=preds, targets=targets)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 0.2, 0, 4]),
        ({"mask_occluded": False}, [1, 0.2, 3, 4]),
        (
            {"mask_occluded": False, "use_bg_ratio_for_occluded": True},
            [1, 0.2, 0.3, 4],
        ),
        ({"ratio_type": "dynamic"}, [1, 6, 0, 4]),
    ],
)
def test_weighted_l1_scales_the_background_and_drops_what_is_hidden(options, expected):
    loss = losses.WeightedL1(ratio_value=0.1, **options)
    values = jax.jit(loss.get_values)(
        preds=np.array([1.0, 2, 3, 4]),
        targets=np.zeros(4),
        visible=np.array([1, 1, 0, 1]),
        bg_mask=np.array([True, False, True, True]),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_weighted_l1_without_masks_is_the_absolute_error():
    assert losses.WeightedL1()(preds=np.array([1.0, 4.0]), targets=np.zeros(2)) == 2.5
    with pytest.raises(ValueError, match="'linear'"):
        losses.WeightedL1(ratio_type="linear")


@pytest.mark.parametrize(
    ("options", "num_objects", "expected"),
    [({}, 1, 0.25), ({"use_l1_loss": False}, 1, 0.0625), ({}, 2, 0.125)],
)
def test_error_of_predicted_overlaps(options, num_objects, expected):
    true = np.zeros((1, 1, 2, 2))
    true[..., 0, 0] = 1
    value = value_of(
        losses.IoULoss(**options),
        preds=np.ones((1, 1, 2, 2)),
        targets=true,
        pred_ious=np.array([[0.5]]),
        num_objects=num_objects,
    )
    assert value == pytest.approx(expected)
