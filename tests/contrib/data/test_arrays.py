"""The transforms of `kauldron.contrib.data` on TensorFlow tensors."""

import numpy as np
import pytest

from kauldron import kd
from kauldron.contrib import data as C

tf = pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")

VIDEO = np.arange(4 * 6 * 8 * 2, dtype=np.uint8).reshape(4, 6, 8, 2)
RECORD = {
    "video": VIDEO,
    "unit": (VIDEO / 255).astype(np.float32),
    "label": np.int64(3),
    "mask": VIDEO[0] > 100,
    "size": np.array([1, 2]),
    "flat": VIDEO[0, 0, :6].ravel(),
    "photo": np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8),
    "boxes": np.array([[0.2, 0.2, 0.6, 0.8]], np.float32),
    "patches": np.arange(24.0).reshape(2, 12),
    "excluded": np.array([1]),
    "nested": {"unit": (VIDEO / 255).astype(np.float32)},
}
TRANSFORMS = {
    "bias": C.AddBias(key=["video", "unit"], bias=[1.5, 2.5]),
    "scale": C.Scale(key=["unit", "label"], factor=0.5),
    "standardize": C.Standardize(key="unit", mean=[0.1, 0.2], std=2.0),
    "normalize": C.Normalize(key="video", normalize_mean=0.5, normalize_std=0.2),
    "one_minus": C.OneMinus(key=["video", "unit", "mask"]),
    "binarize": C.Binarize(key="video", threshold=9),
    "patches": C.VideoMAENormalization(key="video", patch_size=(2, 3, 4)),
    "range_mask": C.CreateRangeMask(key="video", min_value=1, max_value=9),
    "equal_mask": C.CreateNonEqualMask(key="label", mask_value=3),
    "coordinates": C.CreateMeshGridMask(key="video"),
    "grid_mask": C.CreateMeshGridMask(key="size", shape=(3, 4)),
    "repeat": C.Repeat(key="flat", pattern="... -> ... n", axes_lengths={"n": 2}),
    "slice": C.SliceWithStride(key="video", stride=2),
    "zero": C.FetchElementZero(key="video"),
    "flatten": C.FlattenVideo(key="video"),
    "spatial": C.ReshapeSpatialDim(key="flat", h=4, w=3),
    "frames": C.RepeatFrames(key="video", divisible_by=3),
    "clip": C.ExtractInitialFixedLengthClip(key="video", num_frames=6),
    "hstack": C.HStack(key="video"),
    "vstack": C.VStack(key="video"),
    "pad": C.PadImage(key=["video", "mask"], pad=(1, 2)),
    "pad_axis": C.PadAxisToFixedSize(key="video", size=7, axis=0),
    "three": C.ThreeSpatialCrop(key="video", shape=4),
    "upside_down": C.FlipUpsideDown(should_transform_pred=C.matching_keys(["video"])),
    "pad_some": C.py.PadImage(pad=1, should_transform_pred=C.matching_keys(["video"])),
    "first": C.FirstClip(input_key="video", num_frames=3, indices_key="frames"),
    "middle": C.MiddleClip(input_key="video", output_key="clip", num_frames=2),
    "multi": C.MultiClip(input_key="video", num_frames=2, num_clips=2),
    "masked": C.MaskedVideoVisualization(
        sparse_patches_key="patches",
        indices_key="size",
        output_key="picture",
        grid_shape=(1, 2, 2),
        patch_shape=(1, 2, 2),
    ),
}
RANDOM_TRANSFORMS = {
    "augment": C.RandAugment(image_key="photo", boxes_key="boxes", magnitude=15),
    "flip": C.RandomFlipLeftRightVideo(key={"video": "flipped"}),
    "resize": C.RandomResize(key=["video", "photo"], prob=1.0),
    "blur": C.GaussianBlur(key=["unit", "photo"], apply_prob=1.0),
    "random_clip": C.RandomClip(input_key="video", num_frames=2, indices_key="frames"),
    "window": C.TemporalRandomWindow(key=["video", "nested.unit"], length=2),
    "strided": C.TemporalRandomStridedWindow(key="video", length=2, stride=2),
    "walk": C.TemporalRandomWalk(key="video", length=9),
    "subset": C.RandomSubsetAlongAxis(key="flat", num_to_keep=5),
    "drop": C.RandomDropTokens(
        key="patches", key_exclude_indices="excluded", drop_ratio=0.5
    ),
    "subsample": C.SubsampleAndFlatten(
        key="video", drop_ratio=0.5, sample_dims=(1, 2), flatten_up_to=3
    ),
}


def in_graph(transform):
    return next(iter(tf.data.Dataset.from_tensors(RECORD).map(transform.map)))


def eagerly(transform):
    return transform.map(tf.nest.map_structure(tf.constant, RECORD))


@pytest.mark.parametrize("run", [eagerly, in_graph])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensors_give_what_arrays_give(name, run):
    expected = TRANSFORMS[name].map(RECORD)
    actual = run(TRANSFORMS[name])
    assert_same(actual, expected)


def assert_same(actual, expected):
    tf.nest.assert_same_structure(actual, expected)
    for tensor, value in zip(tf.nest.flatten(actual), tf.nest.flatten(expected)):
        assert tensor.numpy().dtype == value.dtype
        np.testing.assert_allclose(tensor, value, rtol=1e-5)


@pytest.mark.parametrize("name", RANDOM_TRANSFORMS)
def test_random_transforms_of_tensors_follow_the_seed_of_the_record(name):
    transform = RANDOM_TRANSFORMS[name]
    seeds = tf.constant([[0, 1], [-5, 2**31 - 1], [7, -(2**31)]], tf.int32)

    def in_graph(seed):
        return transform.random_map(tf.nest.map_structure(tf.constant, RECORD), seed)

    ds = tf.data.Dataset.from_tensor_slices(seeds).map(in_graph)
    results = []
    for seed, actual in zip(seeds.numpy(), ds):
        rng = np.random.default_rng(seed.astype(np.int64) % 2**32)
        expected = transform.random_map(RECORD, rng)
        assert_same(actual, expected)
        assert_same(in_graph(tf.constant(seed)), expected)
        results.append(b"".join(x.numpy().tobytes() for x in tf.nest.flatten(actual)))
    assert len(set(results)) > 1 or name in ("flip", "drop")
    for spec, value in zip(tf.nest.flatten(ds.element_spec), tf.nest.flatten(expected)):
        is_free = name == "resize" and value.ndim > 2 and value.dtype == np.float32
        assert spec.shape.is_fully_defined() or is_free
        assert spec.shape.is_compatible_with(value.shape)


def test_random_transforms_stand_in_a_pipeline_of_tensors():
    records = {"image": np.stack([RECORD["photo"]] * 8), "y": np.arange(8)}

    class Photos(kd.data.tf.TFDataPipeline):
        def ds_for_current_process(self, rng):
            return tf.data.Dataset.from_tensor_slices(records)

    ds = Photos(
        batch_size=4,
        seed=0,
        transforms=[
            kd.data.tf.InceptionCrop(key="image", resize_size=(8, 8)),
            C.RandAugment(image_key="image", magnitude=15),
            C.GaussianBlur(key="image"),
        ],
    )
    assert ds.element_spec["image"].shape == (4, 8, 8, 3)
    first, again = list(ds), list(ds)
    assert [batch["y"].tolist() for batch in first] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one["image"], other["image"])
    images = np.concatenate([batch["image"] for batch in first])
    assert images.dtype == np.uint8
    assert len({image.tobytes() for image in images}) > 5


def test_images_of_unknown_size_keep_it():
    spec = {"image": tf.TensorSpec((None, None, 3), tf.uint8)}
    ds = tf.data.Dataset.from_generator(
        lambda: [{"image": RECORD["photo"]}], output_signature=spec
    )
    augment = C.RandAugment(image_key="image")
    ds = ds.map(lambda record: augment.random_map(record, seed=(0, 1)))
    assert ds.element_spec["image"].shape.as_list() == [None, None, 3]
    expected = augment.random_map({"image": RECORD["photo"]}, seed=(0, 1))["image"]
    np.testing.assert_array_equal(next(iter(ds))["image"], expected)


def test_leaves_chosen_by_a_predicate_get_the_seed():
    class Noise(C.ElementWiseRandomTransformWithPredicate):
        def random_map_element(self, element, seed):
            return element + tf.random.stateless_uniform(element.shape, seed)

    noise = Noise(should_transform_pred=C.matching_keys(["x"]))
    record = {"x1": tf.zeros(3), "x2": tf.zeros(3), "y": tf.zeros(3)}
    result = noise.random_map(record, tf.constant([0, 1]))
    np.testing.assert_array_equal(result["x1"], result["x2"])
    assert result["x1"].numpy().all() and not result["y"].numpy().any()


def test_masks_compare_values_inside_a_graph():
    mask = C.CreateNonEqualMask(key="x", mask_value=5.0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = mask.map({"x": tf.constant([0.0, 0.5, 5.0])})["x_mask"]
        assert session.run(result).tolist() == [0, 0, 1]


def test_shapes_stay_known_and_unknown_ones_are_refused_with_advice():
    pad = C.PadImage(key="x", pad=1)
    known = tf.data.Dataset.from_tensors({"x": VIDEO}).map(pad.map)
    assert known.element_spec["x"].shape == (4, 8, 10, 2)
    spec = tf.TensorSpec((None, 6, 8, 2), tf.uint8)
    videos = tf.data.Dataset.from_generator(lambda: [VIDEO], output_signature=spec)
    with pytest.raises(ValueError, match=r"PadImage needs tensors.*tf\.ensure_shape"):
        videos.map(lambda x: pad.map({"x": x}))


def test_frames_of_videos_as_a_data_set():
    videos = {"video": np.stack([VIDEO, VIDEO + 1]), "fps": [24, 30], "x": [1, 2]}
    slices = C.SliceVideosIntoFrames(["video"], ["fps"])
    ds = tf.data.Dataset.from_tensor_slices(videos)
    frames = list(slices.apply_to_dataset(ds).as_numpy_iterator())
    assert [frame["fps"] for frame in frames] == [24] * 4 + [30] * 4
    np.testing.assert_array_equal(frames[5]["video"], VIDEO[1] + 1)
    assert all(sorted(frame) == ["fps", "video"] for frame in frames)
