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
    "blur": C.GaussianBlur(key="x", sigma_min=0.5, sigma_max=3.0),
    "window": C.TemporalRandomWindow(key="x", length=2),
    "strided": C.TemporalRandomStridedWindow(key="x", length=2, stride=3),
    "walk": C.TemporalRandomWalk(key="x", length=6),
    "subset": C.RandomSubsetAlongAxis(key="x", num_to_keep=3, axis=1),
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


@pytest.mark.parametrize("name", TRANSFORMS)
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
            C.RandomResize(key="x", min_scale_factor=1.0, max_scale_factor=2.0),
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
    assert {tuple(w) for w in windows} == {(i, i + 2, i + 4) for i in range(5)}
    anyhow = draws(
        C.TemporalRandomWindow(key="x", length=3, frame_rate="random"), FRAMES
    )
    assert {int(rate) for window in anyhow for rate in np.diff(window)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [7, 8, 0, 0, 0]),
        ({"padding_value": -1}, [7, 8, -1, -1, -1]),
        ({"padding_mode": "edge"}, [7, 8, 8, 8, 8]),
        ({"padding_mode": "last"}, [7, 8, 8, 8, 8]),
        ({"padding_mode": "wrap"}, [7, 8, 7, 8, 7]),
        ({"frame_rate": 2}, [7, 0, 0, 0, 0]),
    ],
)
def test_a_short_sequence_is_padded(options, expected):
    window = C.TemporalRandomWindow(key="x", length=5, **options)
    assert draws(window, np.array([7, 8]), 1)[0].tolist() == expected


def test_strided_windows_start_at_multiples_of_the_stride():
    frames = np.array([1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0])
    windows = draws(C.TemporalRandomStridedWindow(key="x", length=4, stride=3), frames)
    expected = {(1, 0, 0, 2), (2, 0, 0, 3), (3, 0, 0, 4), (4, 0, 0, 0)}
    assert {tuple(window) for window in windows} == expected


def test_a_walk_turns_at_the_ends_and_now_and_then():
    forth_and_back = [2, 1, 0, 1, 2, 3] * 3
    for walk in draws(C.TemporalRandomWalk(key="x", length=9, thresh=0), FRAMES[:4]):
        assert any(walk.tolist() == forth_and_back[i : i + 9] for i in range(6))
    for walk in draws(C.TemporalRandomWalk(key="x", length=9, thresh=1.1), FRAMES):
        assert len(set(walk)) == 2 and (np.diff(walk) != 0).all()
    walks = draws(C.TemporalRandomWalk(key="x", length=30), FRAMES)
    assert {int(frame) for walk in walks for frame in walk} == set(range(10))
    assert draws(C.TemporalRandomWalk(key="x", length=3), FRAMES[:1], 1)[0].sum() == 0


def test_height_and_width_are_scaled_independently():
    resize = C.RandomResize(key="x", prob=1, min_scale_factor=0.5, max_scale_factor=1.5)
    heights, widths = np.array(
        [x.shape[:2] for x in draws(resize, np.zeros((100, 100, 1)))]
    ).T
    assert heights.min() >= 50 and widths.max() <= 150
    assert abs(np.corrcoef(heights, widths)[0, 1]) < 0.5
    small = [x.shape for x in draws(resize, np.zeros((4, 6, 1), np.uint8), 300)]
    assert {h for h, _, _ in small} <= set(range(2, 7))
    assert {w for _, w, _ in small} <= set(range(3, 10))


def test_resized_or_not_images_become_floats():
    for probability in (0, 1):
        (image,) = draws(C.RandomResize(key="x", prob=probability), VIDEO, 1)
        assert image.dtype == np.float32
    np.testing.assert_array_equal(
        draws(C.RandomResize(key="x", prob=0), VIDEO, 1)[0], VIDEO
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda p: C.RandomResize(
            key="x", min_scale_factor=2, max_scale_factor=2, prob=p
        ),
        lambda p: C.GaussianBlur(key="x", apply_prob=p),
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
    image = np.zeros((3, 3, 1), np.float32)
    image[1, 1] = 1
    for kernel_size in (2, 3):
        blur = C.GaussianBlur(
            key="x", apply_prob=1, sigma_min=1, sigma_max=1, kernel_size=kernel_size
        )
        blurred = draws(blur, image, 1)[0][..., 0]
        expected = [[0.07511, 0.12384, 0.07511], [0.12384, 0.20418, 0.12384]]
        np.testing.assert_allclose(blurred[:2], expected, atol=1e-5)


def test_blur_keeps_constant_images():
    constant = np.full((2, 5, 6, 3), 77, np.uint8)
    blurred = draws(C.GaussianBlur(key="x", apply_prob=1), constant, 3)
    assert all(np.array_equal(b, constant) for b in blurred)


def test_every_entry_can_be_drawn_into_a_subset_in_any_order():
    subsets = draws(C.RandomSubsetAlongAxis(key="x", num_to_keep=4), FRAMES)
    assert all(len(set(s)) == 4 for s in subsets)
    assert any((np.diff(s) < 0).any() for s in subsets)
    assert set(np.concatenate(subsets)) == set(range(10))


def drop(features, **options):
    transform = C.RandomDropTokens(key="x", **options)
    return transform.random_map(features, np.random.default_rng(0))


TOKENS = np.arange(8).reshape(2, 4, 1)


@pytest.mark.parametrize(
    ("options", "indices"),
    [
        ({}, [[0, 1], [0, 1]]),
        ({"offset_indices": True}, [[0, 1], [4, 5]]),
        ({"key_exclude_indices": "e"}, [[1, 2], [0, 1]]),
    ],
)
def test_kept_tokens_are_told_by_their_indices(options, indices):
    record = {"x": TOKENS, "e": np.array([[0], [3]])}
    result = drop(record, drop_ratio=0.5, shuffle_tokens=False, **options)
    assert result["x_indices"].tolist() == indices
    assert result["x_indices"].dtype == np.int32
    kept = result["x"][..., 0] % 4
    np.testing.assert_array_equal(kept, np.array(indices) % 4)


@pytest.mark.parametrize(("ratio", "num_kept"), [(0.0, 10), (0.25, 7), (0.9, 1)])
def test_dropped_tokens_are_drawn(ratio, num_kept):
    tokens = np.arange(20).reshape(10, 2)
    seen = set()
    for seed in range(20):
        transform = C.RandomDropTokens(key="x", drop_ratio=ratio)
        result = transform.random_map({"x": tokens}, np.random.default_rng(seed))
        np.testing.assert_array_equal(result["x"], tokens[result["x_indices"]])
        assert len(set(result["x_indices"])) == num_kept
        seen.add(tuple(result["x_indices"]))
    assert len(seen) == 1 if ratio == 0 else len(seen) > 5


def test_each_element_of_a_batch_has_its_own_draw():
    result = drop({"x": np.zeros((2, 100, 1))}, drop_ratio=0.5)
    assert result["x_indices"][0].tolist() != result["x_indices"][1].tolist()


@pytest.mark.parametrize(
    ("shape", "ratio", "dims", "start"),
    [
        ((3, 3, 3, 1), 0.4, (1, 2), [0, 9, 18, 1, 10, 19]),
        ((2, 2, 3, 1), 0.5, [1], [0, 6, 1, 7, 2, 8]),
    ],
)
def test_flattened_tubes(shape, ratio, dims, start):
    array = np.arange(np.prod(shape)).reshape(shape)
    options = {"drop_ratio": ratio, "sample_dims": dims, "flatten_up_to": 3}
    sample = C.SubsampleAndFlatten(key="x", shuffle_tokens=False, **options)
    result = sample.random_map({"x": array}, np.random.default_rng(0))
    assert result["x_indices"][: len(start)].tolist() == start
    np.testing.assert_array_equal(result["x"][:, 0], result["x_indices"])
    drawn = C.SubsampleAndFlatten(key="x", **options)
    starts = set()
    for seed in range(20):
        shuffled = drawn.random_map({"x": array}, np.random.default_rng(seed))
        assert len(set(shuffled["x_indices"])) == len(result["x_indices"])
        starts.add(int(shuffled["x_indices"][0]))
    assert len(starts) > 1


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: C.TemporalRandomWindow(key="x", length=0)),
        (ValueError, lambda: C.TemporalRandomWindow(key="x", length=1, frame_rate=0)),
        (
            ValueError,
            lambda: C.TemporalRandomStridedWindow(key="x", length=1, stride=0),
        ),
        (ValueError, lambda: C.TemporalRandomWalk(key="x", length=0)),
        (ValueError, lambda: C.RandomResize(key="x", min_scale_factor=0)),
        (ValueError, lambda: C.RandomResize(key="x", prob=2)),
        (ValueError, lambda: C.GaussianBlur(key="x", kernel_size=0)),
        (ValueError, lambda: C.GaussianBlur(key="x", sigma_min=2, sigma_max=1)),
        (ValueError, lambda: C.RandomDropTokens(key="x", drop_ratio=2)),
        (
            ValueError,
            lambda: C.RandomDropTokens(
                key="x", drop_ratio=0, subsampling_pattern="grid"
            ),
        ),
        (
            ValueError,
            lambda: C.SubsampleAndFlatten(key="x", drop_ratio=0, sample_dims=(1,)),
        ),
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
        (ValueError, C.RandomSubsetAlongAxis(key="x", num_to_keep=4), [1, 2, 3]),
        (IndexError, C.RandomSubsetAlongAxis(key="x", num_to_keep=1, axis=1), [1, 2]),
        (ValueError, C.RandomDropTokens(key="x", drop_ratio=0.5), [1, 2]),
        (KeyError, C.RandomDropTokens(key="y", drop_ratio=0.5), [1, 2]),
        (
            ValueError,
            C.SubsampleAndFlatten(key="x", drop_ratio=0.5, flatten_up_to=2),
            [1, 2],
        ),
        (TypeError, C.GaussianBlur(key="x"), "text"),
    ],
)
def test_bad_fields(error, transform, x):
    with pytest.raises(error):
        transform.random_map({"x": x}, np.random.default_rng(0))
