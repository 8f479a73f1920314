"""Metrics of tracked points, in images and in space, against plain numpy."""

import functools

import jax
import numpy as np
import pytest

from kauldron.contrib import metrics
from tests.metrics.values import value_of, values_of

RNG = np.random.default_rng(0)


def tracking_reference(points_pred, points_true, visible_pred, visible_true, evaluated):
    """One video, one point at a time: position, occlusion, Jaccard."""
    thresholds = np.array([1, 2, 4, 8, 16]) / 256
    positions, jaccards = [], []
    for threshold in thresholds:
        near = visible = found = wrong = 0
        for index in zip(*np.nonzero(evaluated)):
            is_near = (
                np.linalg.norm(points_pred[index] - points_true[index]) < threshold
            )
            visible += visible_true[index]
            near += visible_true[index] and is_near
            found += visible_true[index] and visible_pred[index] and is_near
            wrong += visible_pred[index] and not (visible_true[index] and is_near)
        positions.append(near / visible)
        jaccards.append(found / (visible + wrong))
    occlusion = (visible_pred == visible_true)[evaluated].mean()
    return np.mean(positions), occlusion, np.mean(jaccards)


@pytest.mark.parametrize("query_mode", ["strided", "first"])
@pytest.mark.parametrize("axis_order", ["BQTC", "BTQC"])
def test_point_tracking_matches_one_point_at_a_time(query_mode, axis_order):
    batch, queries, frames = 2, 3, 5
    points_true = RNG.uniform(size=(batch, queries, frames, 2))
    points_pred = points_true + RNG.normal(0, 0.02, points_true.shape)
    visible_true = RNG.uniform(size=(batch, queries, frames)) < 0.7
    visible_pred = RNG.uniform(size=(batch, queries, frames)) < 0.7
    query_frame = RNG.integers(0, 2, (batch, queries))
    frame = np.arange(frames)
    later = frame > query_frame[..., None]
    if query_mode == "strided":
        later = frame != query_frame[..., None]
    expected = np.mean(
        [
            tracking_reference(*arrays)
            for arrays in zip(
                points_pred, points_true, visible_pred, visible_true, later
            )
        ],
        axis=0,
    )

    def arrange(array):
        return array if axis_order == "BQTC" else np.swapaxes(array, 1, 2)

    inputs = {
        "pred_tracks": arrange(points_pred),
        "gt_tracks": arrange(points_true),
        "pred_visible": arrange(visible_pred[..., None]),
        "gt_visible": arrange(visible_true[..., None]),
    }
    options = {"query_mode": query_mode, "axis_order": axis_order}
    mask = arrange(later[..., None])[..., 0]

    @jax.jit
    def states():
        pairs = []
        for metric, names in (
            (metrics.TapPositionAccuracy, ("pred_tracks", "gt_tracks", "gt_visible")),
            (metrics.TapOcclusionAccuracy, ("pred_visible", "gt_visible")),
            (metrics.TapAverageJaccard, tuple(inputs)),
        ):
            chosen = {name: inputs[name] for name in names}
            get_state = functools.partial(metric(**options).get_state, **chosen)
            masked = get_state(evaluation_mask=mask)
            pairs.append((get_state(query_frame=query_frame), masked))
        return pairs

    for (state, masked), value in zip(states(), expected, strict=True):
        assert state.compute() == pytest.approx(value, abs=1e-5)
        assert masked.compute() == state.compute()


def visibility(*queries):
    return np.array(queries, np.float32)[None, ..., None]


def test_the_query_is_the_first_frame_unless_given():
    true = np.zeros((1, 1, 3, 2), np.float32)
    pred = true.copy()
    pred[0, 0, :, 0] = np.array([0, 3, 20]) / 256
    visible = visibility([1, 1, 1])
    inputs = {"pred_tracks": pred, "gt_tracks": true, "gt_visible": visible}
    position, jaccard, wide = values_of(
        (metrics.TapPositionAccuracy(), inputs),
        (metrics.TapAverageJaccard(), inputs | {"pred_visible": visible}),
        (metrics.TapPositionAccuracy(thresholds=[1.0]), inputs),
    )
    assert position == pytest.approx(0.3)
    assert jaccard == pytest.approx(0.2)
    assert wide == 1.0


def test_frames_before_the_query_do_not_count_in_mode_first():
    value = value_of(
        metrics.TapOcclusionAccuracy(query_mode="first"),
        pred_visible=visibility([1, 0, 1, 1]),
        gt_visible=visibility([1, 1, 1, 1]),
        query_frame=np.array([[1.0]]),
    )
    assert value == 1.0


def test_queries_have_weights():
    metric = metrics.TapOcclusionAccuracy()
    inputs = {
        "pred_visible": visibility([1, 0, 0], [1, 1, 1]),
        "gt_visible": visibility([1, 1, 1], [1, 1, 1]),
    }
    first, second = (np.array([mask], np.float32) for mask in ((1, 0), (0, 1)))
    values = values_of(
        (metric, inputs),
        (metric, inputs | {"query_mask": first}),
        (metric, inputs | {"query_mask": second}),
    )
    assert values == [0.5, 0, 1]


def test_videos_without_points_do_not_count():
    true = np.ones((2, 2, 1, 1), np.float32)  # b t q 1
    pred = true.copy()
    pred[:, 0] = 0
    mask = np.ones((2, 2, 1))
    mask[1] = 0
    metric = metrics.TapOcclusionAccuracy(axis_order="BTQC")
    value = value_of(metric, pred_visible=pred, gt_visible=true, evaluation_mask=mask)
    assert value == 0.5


def space_inputs(**changes):
    true = np.tile(np.array([0, 0, 4], np.float32), (1, 1, 3, 1))
    pred = true / 2
    pred[0, 0, 1, 0] = 0.03
    return {
        "pred_tracks": pred,
        "gt_tracks": true,
        "pred_visible": np.ones((1, 1, 3, 1)),
        "gt_visible": np.ones((1, 1, 3, 1)),
        "intrinsics": np.array([[256.0, 256, 128, 128]]),
    } | changes


def test_points_in_space_are_scaled_to_the_truth():
    position, jaccard = metrics.Tap3DPositionAccuracy, metrics.Tap3DAverageJaccard
    inputs = space_inputs()
    relative = inputs | {"intrinsics": np.array([[1.0, 1, 0.5, 0.5]])}
    hidden = inputs | {"pred_visible": np.zeros((1, 1, 3, 1))}
    plain, normalized, fixed, in_2d, not_scaled, of_jaccard = values_of(
        (position(), inputs),
        (position(use_normalized_coordinates=True), relative),
        (position(use_fixed_metric_threshold=True), inputs),
        (position(depth_scaling="reproduce_2d"), inputs),
        (position(), hidden),
        (jaccard(), inputs),
    )
    for value in (plain, normalized, fixed, in_2d):
        assert value == pytest.approx(0.8)
    assert not_scaled == 0.0
    assert of_jaccard == pytest.approx(0.733333, abs=1e-5)


@pytest.mark.parametrize("is_map", [True, False])
def test_points_in_space_from_depths_and_tracks_in_the_image(is_map):
    inputs = space_inputs(
        gt_tracks=np.tile(np.array([0, 0, 4.0]), (1, 3, 1, 1)),
        pred_tracks=np.zeros((1, 3, 1, 3)),
        pred_visible=np.ones((1, 3, 1, 1)),
        gt_visible=np.ones((1, 3, 1, 1)),
        pred_tracks_2d=np.full((1, 3, 1, 2), 128.0),
        offline_depth_predictions=np.full(
            (1, 3, 256, 256, 1) if is_map else (1, 3, 1, 1), 4.0
        ),
    )
    metric = metrics.Tap3DPositionAccuracy(
        axis_order="BTQC", use_offline_depth_predictions=True
    )
    assert value_of(metric, **inputs) == 1.0
    with pytest.raises(ValueError, match="needs offline_depth_predictions"):
        metric.get_state(**{**inputs, "pred_tracks_2d": None})


@pytest.mark.parametrize(
    "option",
    [
        {"depth_scaling": "mean"},
        {"thresholds": (3,), "use_fixed_metric_threshold": True},
        {"use_offline_depth_predictions": True},
    ],
)
def test_unknown_options_of_points_in_space_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        metrics.Tap3DAverageJaccard(**option)


@pytest.mark.parametrize("option", [{"query_mode": "last"}, {"axis_order": "TBQC"}])
def test_unknown_options_of_point_tracking_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        metrics.TapAverageJaccard(**option)
