"""The transforms of `kauldron.contrib.data`."""

import dataclasses
import pickle

import jax
import numpy as np
import pytest

from kauldron.contrib import data as C
from kauldron.data import transforms as T
from kauldron.data.engine import stacking

VIDEO = np.random.default_rng(0).integers(0, 255, (3, 4, 6, 8, 2)).astype(np.uint8)
COLUMNS = {
    "video": VIDEO,
    "unit": (VIDEO / 255).astype(np.float32),
    "label": np.arange(3),
    "mask": VIDEO[:, 0, :, :, :1] > 100,
}

WITH_BATCH = {
    "add_bias": C.AddBias(key=["video", "unit", "label"], bias=2),
    "add_biases": C.AddBias(key=["video", "unit"], bias=[1.5, 2.5]),
    "add_biases_to_scalars": C.AddBias(key="label", bias=[[1, 2], [3, 4]]),
    "scale": C.Scale(key=["unit", "label"], factor=0.5),
    "standardize": C.Standardize(key="unit", mean=[0.1, 0.2], std=2.0),
    "normalize": C.Normalize(key="video", normalize_mean=0.5, normalize_std=[0.2, 0.3]),
    "one_minus": C.OneMinus(key=["video", "unit", "label", "mask"]),
    "binarize": C.Binarize(key=["video", "label"], threshold=1),
    "string": C.AddStringField(key="name", value="text"),
    "string_overwrites": C.AddStringField(
        key="label", value="text", overwrite_existing=True
    ),
    "repeat": C.Repeat(key="mask", pattern="h w 1 -> h w c", axes_lengths={"c": 3}),
    "slice": C.SliceWithStride(key="video", stride=2),
    "slice_some": C.SliceWithStride(key="video", stride=1, num_elements=3),
    "zero": C.FetchElementZero(key=["video", "unit"]),
    "flatten": C.FlattenVideo(key="video"),
    "chunks": C.TimeChunkedFlattenVideo(key="video", time_chunk_size=2),
    "depth": C.SpacetimeToDepth(key="video", space2depth_factor=2, time2depth_factor=4),
    "first_frames": C.ExtractInitialFixedLengthClip(key="video", num_frames=2),
    "more_frames": C.ExtractInitialFixedLengthClip(key="video", num_frames=6),
    "pad": C.PadImage(key=["video", "mask"], pad=(1, 2)),
    "pad_reflect": C.PadImage(key="mask", pad=2, mode="reflect"),
    "pad_edge": C.PadImageEdgeVal(key="mask", pad=3),
    "pad_axis": C.PadAxisToFixedSize(key="unit", size=9, axis=-2),
    "pad_axis_first": C.PadAxisToFixedSize(key="video", size=5, axis=0, value=7),
}


@pytest.mark.parametrize("name", WITH_BATCH)
def test_batch_equals_stacked_records(name):
    transform = WITH_BATCH[name]
    batch = T.batch_form(transform)(COLUMNS)
    rows = [transform.map(record) for record in stacking.unstack(COLUMNS, 3)]
    expected = stacking.stack(rows)
    assert sorted(batch) == sorted(expected)
    for key in expected:
        assert batch[key].dtype == expected[key].dtype
        np.testing.assert_array_equal(batch[key], expected[key])


@pytest.mark.parametrize("name", [n for n in WITH_BATCH if T.jax_form(WITH_BATCH[n])])
def test_jax_form_agrees(name):
    columns = jax.tree.map(jax.numpy.asarray, COLUMNS)
    expected = T.batch_form(WITH_BATCH[name])(COLUMNS)
    actual = jax.jit(T.jax_form(WITH_BATCH[name]))(columns)
    for key in expected:
        np.testing.assert_allclose(actual[key], expected[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WITH_BATCH)
def test_values_are_hashable_equal_and_picklable(name):
    transform = WITH_BATCH[name]
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform == dataclasses.replace(transform)
    assert hash(copy) == hash(transform)


def test_tree_unflatten_is_the_inverse_of_flatten():
    record = {"a": {"b": 1, "c": [5, {"d": 6}]}, "x": 0}
    flat = T.TreeFlattenWithPath(key="a").map(record)
    assert C.TreeUnflattenForKey(key="a").map(flat) == record
    columns = {"a_b": np.arange(3), "a_c_0": np.arange(3)}
    nested = T.batch_form(C.TreeUnflattenForKey(key="a"))(columns)
    assert nested["a"]["c"][0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "record",
    [{"b": 1}, {"a": 1, "a_b": 2}, {"a_b": 1, "a_b_c": 2}, {"a_b_c": 1, "a_b": 2}],
)
def test_tree_unflatten_collisions(record):
    with pytest.raises(KeyError, match="TreeUnflattenForKey"):
        C.TreeUnflattenForKey(key="a").map(record)


def test_arithmetic_values():
    x = np.array([0.0, 1.0, 3.0])
    assert C.OneMinus(key="x").map({"x": np.uint8(3)})["x"] == -2
    assert C.OneMinus(key="x").map({"x": np.array([True])})["x"].tolist() == [False]
    assert C.Binarize(key="x", threshold=1).map({"x": x})["x"].tolist() == [0, 0, 1]
    result = C.Standardize(key="x", mean=1, std=2).map({"x": x})["x"]
    assert result.tolist() == [-0.5, 0, 1]


def test_string_field_that_exists():
    with pytest.raises(KeyError, match="already has"):
        C.AddStringField(key="x", value="a").map({"x": 1})
    only = C.AddStringField(key="x", value="ab", overwrite_existing=True)
    assert only.map({"x": 1}) == {"x": "ab"}
    assert only.map_batch({"x": np.arange(2)})["x"].tolist() == ["ab", "ab"]


def test_clip_of_a_list_of_frames():
    frames = [np.ones((2, 2)), np.ones((2, 2))]
    clip = C.ExtractInitialFixedLengthClip(key="x", num_frames=3).map({"x": frames})[
        "x"
    ]
    assert clip.shape == (3, 2, 2) and clip[:2].all() and not clip[2].any()
    with pytest.raises(ValueError, match="no frame"):
        C.ExtractInitialFixedLengthClip(key="x", num_frames=3).map({"x": []})


@pytest.mark.parametrize(
    ("transform", "indices"),
    [
        (C.FirstClip(num_frames=3, stride=2, indices_key="i"), [0, 2, 4]),
        (C.MiddleClip(num_frames=3, stride=2, indices_key="i"), [2, 4, 6]),
        (C.FirstClip(num_frames=4, stride=4, indices_key="i"), [0, 4, 8, 9]),
        (C.MiddleClip(num_frames=4, stride=4, indices_key="i"), [0, 4, 8, 9]),
        (
            C.MultiClip(num_frames=2, num_clips=3, indices_key="i"),
            [[0, 1], [4, 5], [8, 9]],
        ),
    ],
)
def test_clips(transform, indices):
    record = {"images": np.arange(10) * 10}
    result = transform.map(record)
    assert result["i"].tolist() == indices
    assert result["images"].tolist() == (np.array(indices) * 10).tolist()
    assert record["images"].shape == (10,)


def test_random_clip_uses_the_generator_of_the_record():
    clip = C.RandomClip(num_frames=3, output_key="clip")
    record = {"images": np.arange(6)}
    drawn = [
        clip.random_map(record, np.random.default_rng(seed))["clip"].tolist()
        for seed in (*range(30), *range(30))
    ]
    assert drawn[:30] == drawn[30:]
    assert {tuple(clip) for clip in drawn} == {(i, i + 1, i + 2) for i in range(4)}


def test_random_flip_of_a_video_flips_all_frames_or_none():
    flip = C.RandomFlipLeftRightVideo(key="video")
    seen = set()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        result = flip.random_map({"video": VIDEO[0]}, rng)["video"]
        is_kept = np.array_equal(result, VIDEO[0])
        assert is_kept or np.array_equal(result, VIDEO[0][:, :, ::-1])
        seen.add(is_kept)
    assert seen == {True, False}


def test_predicates_pick_leaves_anywhere():
    image = np.arange(4).reshape(2, 2, 1)
    record = {"cams": [{"rgb_left": image, "depth": image}], "image": image, "y": 1}
    result = C.FlipUpsideDown().map(record)
    np.testing.assert_array_equal(result["image"], image[::-1])
    np.testing.assert_array_equal(result["cams"][0]["rgb_left"], image[::-1])
    np.testing.assert_array_equal(result["cams"][0]["depth"], image)
    assert result["y"] == 1
    only_left = C.matching_keys(strs=("rgb",), strs_to_exclude=("left",))
    unchanged = C.FlipUpsideDown(should_transform_pred=only_left).map(record)
    np.testing.assert_array_equal(unchanged["cams"][0]["rgb_left"], image)


def test_random_predicate_transform_treats_all_leaves_alike():
    class Jitter(C.ElementWiseRandomTransformWithPredicate):
        def random_map_element(self, element, rng):
            return element + rng.integers(1000)

    record = {"image": 0, "nested": ({"img": 0},), "label": 0}
    result = Jitter().random_map(record, np.random.default_rng(0))
    assert result["image"] == result["nested"][0]["img"] > 0
    assert result["label"] == 0


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: C.Standardize(key="x", mean=0, std=[1, 0])),
        (
            ValueError,
            lambda: C.Normalize(key="x", normalize_mean=0, normalize_std=0),
        ),
        (ValueError, lambda: C.SliceWithStride(key="x", stride=0)),
        (ValueError, lambda: C.PadImage(key="x", pad=-1)),
        (ValueError, lambda: C.PadImage(key="x", pad=(1, 2, 3))),
        (ValueError, lambda: C.FirstClip(num_frames=0)),
        (ValueError, lambda: C.MultiClip(num_frames=1, num_clips=0)),
        (ValueError, lambda: C.Repeat(key="x", pattern="a b")),
        (KeyError, lambda: C.FirstClip(num_frames=1).map({"image": 1})),
        (ValueError, lambda: C.FirstClip(num_frames=1).map({"images": []})),
        (ValueError, lambda: C.FlipUpsideDown().map({"image": np.zeros(3)})),
        (ValueError, lambda: C.PadImage(key="x", pad=1).map({"x": np.zeros((3, 3))})),
        (
            ValueError,
            lambda: C.PadAxisToFixedSize(key="x", size=2, axis=0).map({"x": [1, 2, 3]}),
        ),
        (
            IndexError,
            lambda: C.PadAxisToFixedSize(key="x", size=2, axis=1).map({"x": [1]}),
        ),
    ],
)
def test_bad_input(error, make):
    with pytest.raises(error):
        make()
