"""The metrics of `kd.contrib` against plain numpy."""

import copy
import dataclasses
import functools
import importlib
import pickle

import jax
import numpy as np
import pytest
import sklearn.metrics

from kauldron.contrib import metrics
from kauldron.contrib.rotations import quaternion_of_matrix
from kauldron.metrics import Metric
from kauldron.summaries.colors import apply_colormap
from tests.metrics.values import value_of, values_of

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("package", ["losses", "metrics", "summaries"])
def test_everything_contributed_has_a_hash_and_equals_its_copies(package):
    namespace = importlib.import_module(f"kauldron.contrib.{package}")
    classes = [
        member
        for member in vars(namespace).values()
        if isinstance(member, type) and issubclass(member, Metric)
    ]
    assert len(classes) >= 3
    for cls in classes:
        required = {
            field.name: {} if field.name == "columns" else str
            for field in dataclasses.fields(cls)
            if field.default is field.default_factory is dataclasses.MISSING
        }
        metric = cls(**required)
        assert copy.copy(metric) == metric
        assert hash(copy.copy(metric)) == hash(metric)
        assert pickle.loads(pickle.dumps(metric)) == metric


POSES = {"preds": (3, 3, 4), "targets": (3, 3, 4)}
OF_RECORDS = {
    metrics.RootMeanSquaredError(): {"preds": (3, 2), "targets": (3, 2)},
    metrics.MultilabelAveragePrecision(): {"scores": (3, 4), "labels": (3, 4)},
    metrics.PoseEndPointError(): POSES,
    metrics.RelativeRotationError(mode="mean"): POSES,
    metrics.RelativeTranslationError(mode="mean"): POSES,
    metrics.TapOcclusionAccuracy(): {
        "pred_visible": (3, 2, 4, 1),
        "gt_visible": (3, 2, 4, 1),
    },
}


@functools.cache
def values_of_records():
    """For each metric: of three records, of the first two, and with the third masked."""
    measured = []
    for metric, shapes in OF_RECORDS.items():
        inputs = {name: normal(*shape) for name, shape in shapes.items()}
        inputs = {n: x > 0 if "visible" in n else x for n, x in inputs.items()}
        real = {name: array[:2] for name, array in inputs.items()}
        masked = {**inputs, "mask": np.array([True, True, False])}
        measured += [(metric, inputs), (metric, real), (metric, masked)]
    values = iter(values_of(*measured))
    return dict(zip(OF_RECORDS, zip(values, values, values)))


@pytest.mark.parametrize("metric", OF_RECORDS, ids=lambda metric: type(metric).__name__)
def test_records_are_masked_out(metric):
    everything, real, masked = values_of_records()[metric]
    assert masked == pytest.approx(real, rel=1e-5)
    assert masked != pytest.approx(everything, rel=1e-5)


def test_joint_accuracy_needs_both_to_be_right():
    value = value_of(
        metrics.JointAccuracy(),
        logits_a=np.eye(3)[[0, 1, 2, 0]],
        labels_a=np.array([[0], [1], [2], [1]]),
        logits_b=np.eye(2)[[0, 0, 1, 1]],
        labels_b=np.array([[0], [1], [1], [1]]),
        mask=np.array([[1.0], [1.0], [2.0], [0.0]]),
    )
    assert value == pytest.approx(3 / 4)


#
# Regression and depth
#


@pytest.mark.parametrize("mode", ["trad", "average_all", "per_sample_sqrt"])
def test_rmse_matches_numpy_over_merged_batches(mode):
    preds, targets = normal(6, 4, 2), normal(6, 4, 2)
    sums = np.square(preds - targets).astype(np.float64).sum((1, 2))
    expected = {
        "trad": np.sqrt(sums.mean()),
        "average_all": np.sqrt(sums.sum() / 48),
        "per_sample_sqrt": np.sqrt(sums).mean(),
    }[mode]
    metric = metrics.RootMeanSquaredError(rmse_mode=mode)
    get_state = jax.jit(metric.get_state)
    parts = [
        get_state(preds=preds[part], targets=targets[part])
        for part in (slice(0, 3), slice(3, 6))
    ]
    merged = parts[0].merge(parts[1])
    assert merged.compute() == pytest.approx(expected, rel=1e-5)


def test_rmse_of_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'mean'"):
        metrics.RootMeanSquaredError(rmse_mode="mean")


def test_cosine_similarity_matches_numpy():
    pred, target = normal(2, 3, 5), normal(2, 3, 5)
    mask = RNG.uniform(size=(2, 3, 1)).astype(np.float32)
    cosines = (pred * target).sum(-1) / (
        np.linalg.norm(pred, axis=-1) * np.linalg.norm(target, axis=-1)
    )
    value = value_of(metrics.CosineSimilarity(), pred=pred, target=target, mask=mask)
    assert value == pytest.approx(np.average(cosines, weights=mask[..., 0]), rel=1e-4)


def test_relative_error_matches_numpy():
    preds, targets = np.abs(normal(4, 3)) + 0.1, np.abs(normal(4, 3)) + 0.1
    mask = np.array([1, 0, 1, 1])
    expected = (np.abs(preds - targets) / targets)[mask > 0].mean()
    value = value_of(
        metrics.MeanAbsoluteRelativeError(), preds=preds, targets=targets, mask=mask
    )
    assert value == pytest.approx(expected, rel=1e-4)


def test_delta1_counts_what_is_within_a_factor():
    targets = np.array([1.0, 1.0, 1.0, 2.0])
    preds = np.array([1.2, 0.7, -5.0, 2.4])
    scaled = metrics.Delta1(denormalize=True, depth_mean=1.0, depth_std=2.0)
    values = values_of(
        (metrics.Delta1(), {"preds": preds, "targets": targets}),
        (scaled, {"preds": (preds - 1) / 2, "targets": (targets - 1) / 2}),
    )
    assert values == [0.5, 0.5]


def test_relative_error_of_depths_drawn_in_colours():
    pytest.importorskip("matplotlib", reason="has the colours")
    colors = apply_colormap(np.arange(256), "viridis")
    images = {
        "pred": colors[[[0, 100, 255]]],
        "target": colors[[[0, 110, 200]]],
    }
    metric = metrics.RGBMeanAbsoluteRelativeError(pred="pred", target="target")
    assert metric(context=images) == pytest.approx(0.121970, abs=1e-5)
    plural = {f"{name}s": image for name, image in images.items()}
    assert value_of(metric, **plural) == pytest.approx(metric(context=images))


def test_psnr_after_resizing():
    target = np.full((2, 8, 8, 3), 0.5, np.float32)
    pred = np.full((2, 4, 4, 3), 0.4, np.float32)
    value = value_of(metrics.PsnrWithResize(), pred=pred, target=target)
    assert value == pytest.approx(20.0, abs=1e-3)


#
# Average precision
#


def test_average_precision_matches_scikit_learn():
    scores = RNG.integers(0, 6, (50, 4)).astype(np.float32)  # with ties
    labels = RNG.integers(0, 2, (50, 4))
    metric = metrics.MultilabelAveragePrecision()
    state = metric.get_state(scores=scores[:20], labels=labels[:20])
    merged = state.merge(metric.get_state(scores=scores[20:], labels=labels[20:]))
    expected = sklearn.metrics.average_precision_score(labels, scores, average="macro")
    assert merged.compute() == pytest.approx(expected)


def test_classes_that_do_not_occur_count_as_zero():
    metric = metrics.MultilabelAveragePrecision()
    scores = np.array([[0.9, 0.6, 0.1, 0.9, 0.9], [1, 0.6, 0, 0, 0.9]])
    labels = np.array([[1, 0, 0, 1, 0], [1, 1, 0, 1, 0]])
    assert metric(scores=scores, labels=labels) == pytest.approx(0.5)
    assert metric(scores=scores, labels=np.zeros((2, 5))) == 0.0
    assert metric.empty().compute() == 0.0


#
# MeanCov
#


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_covariance_match_numpy_over_merged_batches(ddof, weighted):
    samples = normal(12, 3) + 100
    weights = RNG.integers(1, 4, 12) if weighted else None
    parts = [slice(0, 1), slice(1, 5), slice(5, 12)]

    @jax.jit
    def merged():
        state = metrics.MeanCov.empty()
        for part in parts:
            part_weights = None if weights is None else weights[part]
            state = state.merge(
                metrics.MeanCov.from_samples(samples[part], part_weights, ddof=ddof)
            )
        return state

    mean, cov = merged().compute()
    exact = samples.astype(np.float64)
    np.testing.assert_allclose(
        mean, np.average(exact, axis=0, weights=weights), rtol=1e-6
    )
    expected = np.cov(exact.T, fweights=weights, ddof=ddof)
    np.testing.assert_allclose(cov, expected, rtol=1e-3, atol=1e-3)


def test_mean_and_covariance_merge_inside_jit():
    @jax.jit
    def merged():
        state = metrics.MeanCov.from_samples(np.array([[0.0], [2.0]]))
        return state.merge(state)

    mean, cov = merged().compute()
    assert mean == 1.0 and cov == 1.0


def test_too_few_samples_give_nan():
    state = jax.jit(lambda x: metrics.MeanCov.from_samples(x, ddof=1))(np.ones((1, 2)))
    _, cov = state.compute()
    assert np.isnan(cov).all()


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(2,\).*\(3, 1\)"):
        metrics.MeanCov.from_samples(np.ones((3, 1)), np.ones(2))
    state, other = jax.jit(
        lambda x: [metrics.MeanCov.from_samples(x, ddof=ddof) for ddof in (0, 1)]
    )(np.ones((3, 1)))
    with pytest.raises(ValueError, match="ddof"):
        state.merge(other)


#
# Poses
#


def pose(degrees=0.0, translation=(0.0, 0.0, 0.0)):
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    rotation = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return np.concatenate([rotation, np.array(translation)[:, None]], axis=1)


def test_end_point_error_of_a_translation_is_its_length():
    value = value_of(
        metrics.PoseEndPointError(),
        preds=pose(translation=(3, 4, 0))[None],
        targets=pose()[None],
    )
    assert value == pytest.approx(5.0, rel=1e-5)


def test_end_point_error_matches_numpy():
    pred, target = pose(30, (1, 2, 3)), pose(-10, (0, 1, 0))
    grid = np.array([[x, y, z] for x in (-5, 5) for y in (-5, 5) for z in (0, 10)])
    moved = [grid @ p[:, :3].T + p[:, 3] for p in (pred, target)]
    expected = np.linalg.norm(moved[0] - moved[1], axis=-1).mean()
    value = metrics.PoseEndPointError()(preds=pred[None], targets=target[None])
    assert value == pytest.approx(expected, rel=1e-5)


def test_rotation_error_is_the_angle_between_rotations():
    preds, targets = np.stack([pose(10), pose(50)]), np.stack([pose(0), pose(20)])
    inputs = {"preds": preds, "targets": targets}
    mean, accuracy = values_of(
        (metrics.RelativeRotationError(mode="mean"), inputs),
        (metrics.RelativeRotationError(), inputs),
    )
    assert mean == pytest.approx(20.0, abs=1e-2)
    assert accuracy == 0.5


def test_translation_error_is_the_angle_between_directions():
    preds = np.stack([pose(translation=(2, 0, 0)), pose(translation=(0, 0, 3))])
    targets = np.stack([pose(translation=(1, 1, 0)), pose(translation=(0, 0, 1))])
    inputs = {"preds": preds, "targets": targets}
    mean, accuracy = values_of(
        (metrics.RelativeTranslationError(mode="mean"), inputs),
        (metrics.RelativeTranslationError(threshold_degs=30), inputs),
    )
    assert mean == pytest.approx(22.5, abs=0.1)
    assert accuracy == 0.5


def test_similarity_of_translations_is_the_cosine():
    preds, targets = (
        pose(translation=(2, 0, 0))[None],
        pose(translation=(1, 1, 0))[None],
    )
    similarity = metrics.RelativeTranslationError(mode="similarity")
    value = value_of(similarity, preds=preds, targets=targets)
    assert value == pytest.approx(0.5**0.5)
    with pytest.raises(ValueError, match="similarity"):
        metrics.RelativeRotationError(mode="similarity")


def as_quaternions(poses):
    quaternions = quaternion_of_matrix(poses[..., :3])
    return np.concatenate([quaternions, poses[..., 3]], axis=-1)[..., None]


OF_POSES = [
    metrics.PoseEndPointError,
    metrics.RelativeRotationError,
    metrics.RelativeTranslationError,
    metrics.PoseMeanAverageAccuracy,
]
PREDS = np.stack([pose(30, (1, 2, 3)), pose(170, (0, 1, 0)), pose(-5, (1, 0, 0))])
TARGETS = np.stack([pose(10, (1, 2, 2)), pose(-170, (0, 1, 1)), pose(0, (1, 0, 0))])


@functools.cache
def values_of_poses():
    """For each metric: of poses as matrices, and of the same as quaternions."""
    matrices = {"preds": PREDS, "targets": TARGETS}
    quaternions = {name: as_quaternions(poses) for name, poses in matrices.items()}
    measured = []
    for cls in OF_POSES:
        as_given = cls(rotation_as_quaternion=True)
        measured += [(cls(), matrices), (as_given, quaternions)]
    values = iter(values_of(*measured))
    return dict(zip(OF_POSES, zip(values, values)))


@pytest.mark.parametrize("cls", OF_POSES)
def test_poses_may_be_quaternions(cls):
    of_matrices, of_quaternions = values_of_poses()[cls]
    assert of_quaternions == pytest.approx(of_matrices, abs=1e-4)
    with pytest.raises(ValueError, match=r"\(7, 1\)"):
        value_of(cls(rotation_as_quaternion=True), preds=PREDS, targets=TARGETS)


ACCURACIES = {
    (0, 45): 0.5,
    (10, 10): 21 / 31,
    (0, 10, 29.9, 29.99, 30.1): 0.348387,
    (0, 0): 1.0,
}


@functools.cache
def values_of_errors():
    """For each tuple of errors: of these alone, and with others that are masked out."""
    metric = metrics.PoseMeanAverageAccuracy()
    measured = []
    for errors in ACCURACIES:
        preds = np.stack([pose(angle, (1, 0, 0)) for angle in errors])[None]
        targets = np.stack([pose(0, (1, 0, 0))] * len(errors))[None]
        more = {
            "preds": np.concatenate([preds, targets], axis=1),
            "targets": np.concatenate([targets, targets], axis=1),
            "mask": np.repeat([1, 0], len(errors))[None],
        }
        measured += [(metric, {"preds": preds, "targets": targets}), (metric, more)]
    values = iter(values_of(*measured))
    return dict(zip(ACCURACIES, zip(values, values)))


@pytest.mark.parametrize(("errors", "expected"), ACCURACIES.items())
def test_mean_average_accuracy_of_poses(errors, expected):
    alone, masked = values_of_errors()[errors]
    assert alone == pytest.approx(expected, abs=1e-5)
    assert masked == pytest.approx(expected, abs=1e-5)


def test_unknown_mode_of_angles_is_refused():
    with pytest.raises(ValueError, match="'median'"):
        metrics.RelativeRotationError(mode="median")
