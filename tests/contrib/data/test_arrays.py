"""The transforms of `kauldron.contrib.data` on TensorFlow tensors."""

import numpy as np
import pytest

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
}


def in_graph(transform):
    return next(iter(tf.data.Dataset.from_tensors(RECORD).map(transform.map)))


def eagerly(transform):
    return transform.map({name: tf.constant(value) for name, value in RECORD.items()})


@pytest.mark.parametrize("run", [eagerly, in_graph])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensors_give_what_arrays_give(name, run):
    expected = TRANSFORMS[name].map(RECORD)
    actual = run(TRANSFORMS[name])
    assert sorted(actual) == sorted(expected)
    for key, value in expected.items():
        assert actual[key].numpy().dtype == value.dtype, key
        np.testing.assert_allclose(actual[key], value, rtol=1e-5)


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
