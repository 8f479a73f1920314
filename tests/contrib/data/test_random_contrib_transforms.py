"""The random transforms of `kauldron.contrib.data`."""

import dataclasses

import numpy as np
import pytest

from kauldron import kd
from kauldron.contrib import data as C

VIDEO = np.random.default_rng(0).integers(0, 255, (4, 6, 8, 2)).astype(np.uint8)
FRAMES = np.arange(10)

TRANSFORMS = {
    "flip": C.RandomFlipLeftRightVideo(key="x"),
    "resize": C.RandomResize(key="x", scale_range=(0.5, 2.0)),
    "blur": C.GaussianBlur(key="x", sigma_range=(0.5, 3.0)),
    "window": C.TemporalRandomWindow(key="x", length=2),
    "strided": C.TemporalRandomStridedWindow(key="x", length=2, max_stride=3),
    "walk": C.TemporalRandomWalk(key="x", length=6, max_step=2),
    "subset": C.RandomSubsetAlongAxis(key="x", num_elements=3, axis=1),
    "drop": C.RandomDropTokens(key="x", drop_rate=0.5),
    "points": C.SubsampleAndFlatten(key="x", num_elements=7),
}


def draws(transform, x, count=50):
    return [
        transform.random_map({"x": x}, np.random.default_rng(seed))["x"]
        for seed in range(count)
    ]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_generator_of_the_record_decides(name):
    first, again = (
        draws(TRANSFORMS[name], VIDEO, 20),
        draws(TRANSFORMS[name], VIDEO, 20),
    )
    for a, b in zip(first, again, strict=True):
        assert a.dtype == VIDEO.dtype
        np.testing.assert_array_equal(a, b)
    assert len({(a.shape, a.tobytes()) for a in first}) > 1


@pytest.mark.parametrize("name", TRANSFORMS)
def test_all_keys_are_treated_alike(name):
    transform = dataclasses.replace(TRANSFORMS[name], key=["x", "y"])
    record = {"x": VIDEO, "y": VIDEO.copy()}
    result = transform.random_map(record, np.random.default_rng(1))
    np.testing.assert_array_equal(result["x"], result["y"])


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n != "resize"])
def test_batches_are_the_stacked_records(name):
    columns = {"x": np.stack([VIDEO, VIDEO[::-1], VIDEO[:, ::-1]])}
    options = {
        "transforms": [TRANSFORMS[name]],
        "shuffle": False,
        "num_epochs": 1,
        "seed": 3,
    }
    (batch,) = kd.data.py.Arrays(columns, batch_size=3, **options)
    records = [*kd.data.py.Arrays(columns, **options)]
    expected = np.stack([record["x"] for record in records])
    assert batch["x"].dtype == expected.dtype
    np.testing.assert_array_equal(batch["x"], expected)


def test_random_sizes_can_be_cropped_before_the_batch():
    ds = kd.data.py.Arrays(
        {"x": np.stack([VIDEO] * 3)},
        transforms=[
            C.RandomResize(key="x", scale_range=(1.0, 2.0)),
            kd.data.py.RandomCrop(key="x", shape=(None, 5, 5, None)),
        ],
        shuffle=False,
        num_epochs=1,
        batch_size=3,
        seed=0,
    )
    assert next(iter(ds))["x"].shape == (3, 4, 5, 5, 2)


def test_random_flip_of_a_video_flips_all_frames_or_none():
    flip = C.RandomFlipLeftRightVideo(key="video")
    seen = set()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        result = flip.random_map({"video": VIDEO}, rng)["video"]
        is_kept = np.array_equal(result, VIDEO)
        assert is_kept or np.array_equal(result, VIDEO[:, :, ::-1])
        seen.add(is_kept)
    assert seen == {True, False}


def test_a_window_can_lie_anywhere():
    windows = draws(C.TemporalRandomWindow(key="x", length=3, frame_rate=2), FRAMES)
    assert {tuple(w) for w in windows} == {(i, i + 2, i + 4) for i in range(6)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [7, 8, 0, 0, 0]),
        ({"padding_value": -1}, [7, 8, -1, -1, -1]),
        ({"padding_mode": "edge"}, [7, 8, 8, 8, 8]),
        ({"padding_mode": "wrap"}, [7, 8, 7, 8, 7]),
        ({"frame_rate": 2}, [7, 0, 0, 0, 0]),
    ],
)
def test_a_short_sequence_is_padded(options, expected):
    window = C.TemporalRandomWindow(key="x", length=5, **options)
    assert draws(window, np.array([7, 8]), 1)[0].tolist() == expected


def test_strides_are_those_that_fit():
    strided = C.TemporalRandomStridedWindow(key="x", length=4, max_stride=5)
    windows = draws(strided, FRAMES, 200)
    assert {int(w[1] - w[0]) for w in windows} == {1, 2, 3}  # 4 frames of 10
    assert all(len(set(np.diff(w))) == 1 for w in windows)
    assert {int(w[0]) for w in windows if w[1] - w[0] == 1} == set(range(7))
    short = draws(strided, FRAMES[1:3], 5)
    assert [w.tolist() for w in short] == [[1, 2, 0, 0]] * 5


def test_a_walk_takes_small_steps_and_stays_inside():
    walks = draws(C.TemporalRandomWalk(key="x", length=30, max_step=2), FRAMES)
    assert all(len(walk) == 30 for walk in walks)
    assert {int(step) for walk in walks for step in np.diff(walk)} == {-2, -1, 0, 1, 2}
    assert {int(frame) for walk in walks for frame in walk} == set(range(10))


def test_height_and_width_are_scaled_independently():
    image = np.zeros((100, 100, 1), np.float32)
    resized = draws(C.RandomResize(key="x", scale_range=(0.5, 1.5)), image)
    heights, widths = np.array([r.shape[:2] for r in resized]).T
    assert heights.min() >= 50 and widths.max() <= 150
    assert abs(np.corrcoef(heights, widths)[0, 1]) < 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda p: C.RandomResize(key="x", scale_range=(2, 2), probability=p),
        lambda p: C.GaussianBlur(key="x", probability=p),
    ],
)
def test_probability(make):
    def count_changed(probability):
        results = draws(make(probability), VIDEO, 100)
        return sum(not np.array_equal(result, VIDEO) for result in results)

    assert count_changed(0.0) == 0
    assert count_changed(1.0) > 80  # a narrow Gaussian changes nothing
    assert 20 < count_changed(0.5) < 80


def test_blur_of_a_dot_is_a_gaussian():
    image = np.zeros((31, 31, 1), np.float32)
    image[15, 15] = 1
    blurred = draws(C.GaussianBlur(key="x", sigma_range=(2, 2)), image, 1)[0][..., 0]
    x = np.arange(31) - 15
    gaussian = np.exp(-(x**2) / 8) * (abs(x) <= 6)
    expected = np.outer(gaussian, gaussian) / gaussian.sum() ** 2
    np.testing.assert_allclose(blurred, expected, atol=1e-6)


def test_blur_keeps_constant_images_and_has_the_size_asked_for():
    constant = np.full((2, 5, 6, 3), 77, np.uint8)
    blurred = draws(C.GaussianBlur(key="x"), constant, 3)
    assert all(np.array_equal(b, constant) for b in blurred)
    dot = np.zeros((9, 9, 1))
    dot[4, 4] = 1
    blur = C.GaussianBlur(key="x", sigma_range=(9, 9), kernel_size=3)
    assert np.count_nonzero(draws(blur, dot, 1)[0]) == 9


def test_subsets_keep_the_order_and_every_entry_can_be_drawn():
    subsets = draws(C.RandomSubsetAlongAxis(key="x", num_elements=4), FRAMES)
    assert all(len(s) == 4 and (np.diff(s) > 0).all() for s in subsets)
    assert set(np.concatenate(subsets)) == set(range(10))


@pytest.mark.parametrize(("rate", "num_kept"), [(0.0, 10), (0.25, 8), (0.99, 1)])
def test_tokens_are_dropped(rate, num_kept):
    tokens = np.arange(20).reshape(10, 2)
    for kept in draws(C.RandomDropTokens(key="x", drop_rate=rate), tokens, 5):
        assert len(kept) == num_kept
        rows = kept[:, 0] // 2
        np.testing.assert_array_equal(kept, tokens[rows])
        assert (np.diff(rows) > 0).all()


def test_points_keep_their_channels():
    points = draws(C.SubsampleAndFlatten(key="x", num_elements=9), VIDEO, 3)
    available = {tuple(p) for p in VIDEO.reshape(-1, 2)}
    assert all(p.shape == (9, 2) and {*map(tuple, p)} <= available for p in points)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: C.TemporalRandomWindow(key="x", length=0)),
        (ValueError, lambda: C.TemporalRandomWindow(key="x", length=1, frame_rate=0)),
        (
            ValueError,
            lambda: C.TemporalRandomStridedWindow(key="x", length=1, max_stride=0),
        ),
        (ValueError, lambda: C.TemporalRandomWalk(key="x", length=1, max_step=-1)),
        (ValueError, lambda: C.RandomResize(key="x", scale_range=(0, 1))),
        (ValueError, lambda: C.RandomResize(key="x", scale_range=2)),
        (ValueError, lambda: C.RandomResize(key="x", probability=2)),
        (ValueError, lambda: C.GaussianBlur(key="x", kernel_size=4)),
        (ValueError, lambda: C.GaussianBlur(key="x", sigma_range=(2, 1))),
        (ValueError, lambda: C.RandomDropTokens(key="x", drop_rate=1)),
    ],
)
def test_bad_arguments(error, make):
    with pytest.raises(error):
        make()


@pytest.mark.parametrize(
    ("error", "transform", "x"),
    [
        (ValueError, C.TemporalRandomWindow(key="x", length=1), []),
        (ValueError, C.TemporalRandomWalk(key="x", length=1), np.zeros((0, 3))),
        (ValueError, C.RandomFlipLeftRightVideo(key="x"), np.zeros((3, 3))),
        (ValueError, C.RandomSubsetAlongAxis(key="x", num_elements=4), [1, 2, 3]),
        (IndexError, C.RandomDropTokens(key="x", drop_rate=0.5), [1, 2]),
        (ValueError, C.SubsampleAndFlatten(key="x", num_elements=1), [1, 2]),
        (TypeError, C.GaussianBlur(key="x"), "text"),
    ],
)
def test_bad_fields(error, transform, x):
    with pytest.raises(error):
        transform.random_map({"x": x}, np.random.default_rng(0))
