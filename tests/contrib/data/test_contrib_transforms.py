"""The transforms of `kauldron.contrib.data`."""

import dataclasses
import functools
import pickle

import jax
import numpy as np
import pytest

from kauldron import kd
from kauldron.contrib import data as C
from kauldron.data import transforms as T
from kauldron.data.engine import trees

VIDEO = np.random.default_rng(0).integers(0, 255, (3, 4, 6, 8, 2)).astype(np.uint8)
COLUMNS = {
    "video": VIDEO,
    "unit": (VIDEO / 255).astype(np.float32),
    "label": np.arange(3),
    "mask": VIDEO[:, 0, :, :, :1] > 100,
    "flat": VIDEO[:, 0, 0, :6].reshape(3, 12),
    "size": np.array([[1, 2], [3, 4], [0, 5]]),
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
    "range_mask": C.CreateRangeMask(key=["video", "label"], min_value=1, max_value=2),
    "equal_mask": C.CreateNonEqualMask(key="label", mask_value=1, target_key="video"),
    "hstack": C.HStack(key=["video", "mask", "size"]),
    "vstack": C.VStack(key=["video", "mask", "size"]),
    "repeat_frames": C.RepeatFrames(key=["video", "size"], divisible_by=3),
    "three_crops": C.ThreeSpatialCrop(key=["video", "unit"], shape=4),
    "spatial": C.ReshapeSpatialDim(key={"flat": "image"}, h=4, w=3),
    "apply": C.ApplyW(key="unit", w=[[0, 1], [2, 0]]),
    "pad_axis_first": C.PadAxisToFixedSize(key="video", size=5, axis=0, value=7),
}


@pytest.mark.parametrize("name", WITH_BATCH)
def test_batch_equals_stacked_records(name):
    transform = WITH_BATCH[name]
    batch = T.batch_form(transform)(COLUMNS)
    rows = [transform.map(record) for record in trees.unstack(COLUMNS, 3)]
    expected = trees.stack(rows)
    assert sorted(batch) == sorted(expected)
    for key in expected:
        assert batch[key].dtype == expected[key].dtype
        np.testing.assert_array_equal(batch[key], expected[key])


WITH_JAX = [name for name in WITH_BATCH if T.jax_form(WITH_BATCH[name])]


@functools.cache
def made_by_jax():
    """What all transforms make, by one program: it is compiled sooner than many."""

    @jax.jit
    def run(columns):
        return {name: T.jax_form(WITH_BATCH[name])(columns) for name in WITH_JAX}

    return run(COLUMNS)


@pytest.mark.parametrize("name", WITH_JAX)
def test_jax_form_agrees(name):
    expected = T.batch_form(WITH_BATCH[name])(COLUMNS)
    actual = made_by_jax()[name]
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
    [{"a": 1, "a_b": 2}, {"a_b": 1, "a_b_c": 2}, {"a_b_c": 1, "a_b": 2}],
)
def test_tree_unflatten_collisions(record):
    with pytest.raises(KeyError, match="TreeUnflattenForKey") as info:
        C.TreeUnflattenForKey(key="a").map(record)
    assert "a" in record or isinstance(info.value, ValueError)


def test_tree_unflatten_of_a_record_without_such_fields():
    assert C.TreeUnflattenForKey(key="a").map({"b": 1}) == {"b": 1}


def test_arithmetic_values():
    x = np.array([0.0, 1.0, 3.0])
    assert C.OneMinus(key="x").map({"x": np.uint8(3)})["x"] == -2
    assert C.OneMinus(key="x").map({"x": np.array([True])})["x"].tolist() == [False]
    assert C.Binarize(key="x", threshold=1).map({"x": x})["x"].tolist() == [0, 0, 1]
    result = C.Standardize(key="x", mean=1, std=2).map({"x": x})["x"]
    assert result.tolist() == [-0.5, 0, 1]


@pytest.mark.parametrize(
    "transform",
    [
        C.AddBias(key="x", bias=[1.0, 2.0]),
        C.Scale(key="x", factor=[1.0, 2.0]),
        C.Standardize(key="x", mean=[1.0, 2.0], std=[3.0, 4.0]),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_per_channel_keep_the_dtype_of_floats(transform, dtype):
    assert transform.map({"x": np.ones((3, 2), dtype)})["x"].dtype == dtype


def test_string_field_that_exists():
    with pytest.raises(KeyError, match="already has"):
        C.AddStringField(key="x", value="a").map({"x": 1})
    only = C.AddStringField(key="x", value="ab", overwrite_existing=True)
    assert only.map({"x": 1}) == {"x": "ab"}
    assert only.map_batch({"x": np.arange(2)})["x"].tolist() == ["ab", "ab"]


def test_masks_are_named_for_the_field_they_are_for():
    record = {"depth": np.array([0.0, 1.0, np.nan, 2.0])}
    limits = {"min_value": 1, "max_value": 2}
    named = {
        "depth_mask": C.CreateRangeMask(key="depth", **limits),
        "image_mask": C.CreateRangeMask(key="depth", target_key="image", **limits),
        "c_mask": C.CreateRangeMask(
            key="a", mask_key="depth", target_key="c", **limits
        ),
        "is_near": C.CreateRangeMask(key={"depth": "is_near"}, **limits),
    }
    for name, transform in named.items():
        result = dataclasses.replace(transform).map(record)
        assert sorted(result) == sorted(["depth", name])
        assert result[name].dtype == np.float32
        assert result[name].tolist() == [0, 1, 0, 1]


def test_a_mask_does_not_replace_a_field():
    mask = C.CreateNonEqualMask(key="x", mask_value=0)
    with pytest.raises(KeyError, match="already has a field 'x_mask'"):
        mask.map({"x": 1, "x_mask": 2})


def test_own_masks_are_made_from_floats():
    class IsFloat(C.CreateMask):
        def condition(self, tensor):
            return np.full(tensor.shape, tensor.dtype == np.float32)

    assert IsFloat(key="x").map({"x": np.arange(2)})["x_mask"].tolist() == [1, 1]


def test_coordinates_of_an_image():
    grid = C.CreateMeshGridMask(key="x").map({"x": np.zeros((2, 3, 1), np.uint8)})
    expected = [[[[0, 0], [1, 0], [2, 0]], [[0, 1], [1, 1], [2, 1]]]]
    assert grid["x_mask"].dtype == np.float32
    assert grid["x_mask"].tolist() == expected


def test_grid_mask():
    mask = C.CreateMeshGridMask(key="size", shape=(3, 4)).map({"size": [2, 3]})
    expected = np.zeros((3, 4), np.float32)
    expected[:2, :3] = 1
    np.testing.assert_array_equal(mask["size_mask"], expected)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3), (5, 2, 3, 4)])
def test_stacks_are_those_of_numpy(shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    for entries in (array, [*array]):
        across = C.HStack(key="x").map({"x": entries})["x"]
        np.testing.assert_array_equal(across, np.hstack(list(array)))
        down = C.VStack(key="x").map({"x": entries})["x"]
        np.testing.assert_array_equal(down, np.vstack(list(array)))


def test_stacks_of_entries_with_different_sizes():
    images = [np.ones((2, 3, 1)), np.zeros((2, 5, 1))]
    assert C.HStack(key="x").map({"x": images})["x"].shape == (2, 8, 1)
    with pytest.raises(ValueError, match="dimensions"):
        C.VStack(key="x").map({"x": images})


@pytest.mark.parametrize(
    ("length", "divisor", "expected"),
    [
        (3, 2, [0, 1, 1, 2]),
        (11, 5, [0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 9, 10]),
        (5, 5, [0, 1, 2, 3, 4]),
    ],
)
def test_repeated_frames_are_spread_evenly(length, divisor, expected):
    repeat = C.RepeatFrames(key="x", divisible_by=divisor)
    frames = np.arange(length)
    assert repeat.map({"x": frames})["x"].tolist() == expected
    videos = np.broadcast_to(frames[:, None, None, None], (2, length, 2, 2, 1))
    assert repeat.map({"x": videos})["x"][1, :, 0, 0, 0].tolist() == expected


@pytest.mark.parametrize(
    ("shape", "size", "starts"),
    [
        ((1, 7), 1, [(0, 0), (0, 3), (0, 6)]),
        ((2, 7), 2, [(0, 0), (0, 3), (0, 5)]),
        ((4, 4), 1, [(2, 0), (2, 2), (2, 3)]),
        ((9, 6), 4, [(0, 1), (3, 1), (5, 1)]),
    ],
)
def test_three_crops_lie_along_the_longer_edge(shape, size, starts):
    video = np.arange(2 * np.prod(shape)).reshape(2, *shape, 1)
    crops = C.ThreeSpatialCrop(key="x", shape=size).map({"x": video})["x"]
    expected = [video[:, top : top + size, left : left + size] for top, left in starts]
    np.testing.assert_array_equal(crops, np.concatenate(expected))


def test_fields_of_any_rank_are_resized_as_jax_does():
    resize = C.JaxImageResize(key="x", shape=[2, 1])
    assert hash(resize) == hash(pickle.loads(pickle.dumps(resize)))
    result = resize.map({"x": np.arange(4.0)[:, None]})["x"]
    np.testing.assert_allclose(result, [[0.714286], [2.285714]], atol=1e-5)


def test_patches_return_to_their_places_in_the_video():
    show = C.MaskedVideoVisualization(
        sparse_patches_key="x",
        indices_key="i",
        output_key="video",
        grid_shape=[1, 2, 2],
        patch_shape=[1, 1, 1],
        channels=1,
    )
    record = {"x": np.array([[1.0], [2.0]]), "i": np.array([3, 0])}
    assert show.map(record)["video"].tolist() == [[[[2], [0.5]], [[0.5], [1]]]]
    with pytest.raises(ValueError, match="have 1 entries"):
        show.map({**record, "x": np.ones((2, 3))})
    with pytest.raises(KeyError, match="'i'"):
        show.map({"x": record["x"]})
    tokens = VIDEO[0].reshape(2, 2, 3, 2, 4, 2, 2).transpose(0, 2, 4, 1, 3, 5, 6)
    everything = C.MaskedVideoVisualization(
        sparse_patches_key="x",
        indices_key="i",
        output_key="video",
        grid_shape=(2, 3, 4),
        patch_shape=(2, 2, 2),
        channels=2,
    )
    back = everything.map({"x": tokens.reshape(24, 16), "i": np.arange(24)})["video"]
    np.testing.assert_array_equal(back, VIDEO[0])


def test_patches_of_a_video_are_normalized_one_by_one():
    transform = C.VideoMAENormalization(key="video", patch_size=(2, 3, 4))
    result = transform.map({"video": VIDEO[0]})["video"]
    patch = VIDEO[0][2:4, 3:6, 4:8].astype(np.float32)
    axes = (0, 1, 2)
    expected = (patch - patch.mean(axes)) / (patch.std(axes) + 1e-6)
    np.testing.assert_allclose(result[2:4, 3:6, 4:8], expected, rtol=1e-5, atol=1e-5)


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
        (C.FirstClip(indices_key="i"), [0]),
        (C.FirstClip(num_frames=4, stride=4, indices_key="i"), [0, 4, 8, 10]),
        (C.MiddleClip(num_frames=4, stride=4, indices_key="i"), [0, 4, 8, 10]),
        (C.MultiClip(indices_key="i"), [0]),
        (
            C.MultiClip(num_frames=2, stride=2, num_clips=3, indices_key="i"),
            [0, 2, 3, 5, 7, 9],
        ),
    ],
)
def test_clips(transform, indices):
    record = {"images": np.arange(11) * 10}
    result = transform.map(record)
    assert result["i"].tolist() == indices
    assert result["images"].tolist() == (np.array(indices) * 10).tolist()
    assert record["images"].shape == (11,)


def test_random_clip_uses_the_generator_of_the_record():
    clip = C.RandomClip(num_frames=3, output_key="clip")
    record = {"images": np.arange(6)}
    drawn = [
        clip.random_map(record, np.random.default_rng(seed))["clip"].tolist()
        for seed in (*range(30), *range(30))
    ]
    assert drawn[:30] == drawn[30:]
    assert {tuple(clip) for clip in drawn} == {(i, i + 1, i + 2) for i in range(3)}


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
        (ValueError, lambda: C.PadImage(key="x", pad=1).map({"x": np.zeros((3, 3))})),
        (
            ValueError,
            lambda: C.PadImage(key="x", pad=1).map_batch({"x": np.zeros((2, 3, 3))}),
        ),
        (
            ValueError,
            lambda: C.CreateNonEqualMask(key=["x", "y"], mask_value=0, mask_key="m"),
        ),
        (ValueError, lambda: C.CreateMeshGridMask(key="x", shape=(2,)).map({"x": 3})),
        (ValueError, lambda: C.HStack(key="x").map({"x": []})),
        (ValueError, lambda: C.HStack(key="x").map_batch({"x": np.zeros((2, 0))})),
        (ValueError, lambda: C.RepeatFrames(key="x", divisible_by=0)),
        (
            ValueError,
            lambda: C.ThreeSpatialCrop(key="x", shape=4).map(
                {"x": np.ones((2, 3, 5, 1))}
            ),
        ),
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


def test_videos_become_records_of_frames():
    frames = C.SliceVideosIntoFrames(["video"], ["fps"])
    record = {"video": np.zeros((3, 8, 8, 3)), "fps": 30, "x": 1}
    assert [
        {name: np.shape(value) for name, value in frame.items()}
        for frame in frames.flat_map(record)
    ] == 3 * [{"video": (8, 8, 3), "fps": ()}]


def test_frames_of_videos_are_the_records_of_a_pipeline():
    ds = kd.data.py.Arrays(
        {"video": np.arange(6).reshape(2, 3), "fps": np.array([30, 60])},
        shuffle=False,
        num_epochs=1,
        batch_size=2,
        transforms=[C.SliceVideosIntoFrames(["video"], ["fps"])],
    )
    batches = list(ds)
    assert [batch["video"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    assert batches[1]["fps"].tolist() == [30, 60]


def test_frames_need_videos_of_one_length():
    with pytest.raises(ValueError, match="a: 2, b: 3"):
        C.SliceVideosIntoFrames(["a", "b"]).flat_map({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(ValueError, match="at least one"):
        C.SliceVideosIntoFrames([], [])


def test_iterators_are_those_of_the_library():
    assert C.iters.Iterator is kd.data.iters.Iterator
    with pytest.raises(ImportError, match="grain"):
        C.iters.TfGrainIterator(source=None, iter=None)
