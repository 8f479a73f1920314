"""The neutral transforms on TensorFlow tensors, eager and in graphs."""

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")

import tensorflow as tf

from kauldron.data import transforms as T

IMAGE = np.random.default_rng(0).integers(0, 255, (8, 12, 3)).astype(np.uint8)

# Those whose values are the same as on NumPy arrays.
SAME = {
    "cast": T.Cast(key="x", dtype="float16"),
    "cast_bfloat16": T.Cast(key="x", dtype="bfloat16"),
    "range": T.ValueRange(key="x", vrange=(0, 1)),
    "range_inverted": T.ValueRange(key="x", vrange=(1, -1), in_vrange=(50, 100)),
    "range_int": T.ValueRange(key="x", vrange=(0, 99), dtype="int8"),
    "range_saturated": T.ValueRange(
        key="x", vrange=(0, 300), dtype="uint8", clip_values=False
    ),
    "rearrange": T.Rearrange(key="x", pattern="h w c -> (w h) c 1"),
    "gather": T.Gather(key="x", axis=1, indices=(0, -1)),
    "crop": T.CenterCrop(key="x", shape=(3, None, 1)),
    "elements": T.Elements(keep=["x"], copy={"y": "z"}),
    "constants": T.AddConstants({"c": np.float32(1.5)}),
    "resize_nearest": T.Resize(key="x", size=(5, 5), method="nearest"),
    "resize_nearest_up": T.Resize(key="x", min_size=20, method="nearest"),
    "resize_bilinear": T.Resize(key="x", size=(16, 5), method="bilinear"),
    "resize_bicubic": T.Resize(key="x", max_size=6, method="bicubic"),
    "resize_area": T.Resize(key="x", size=(3, 5), method="area"),
    "resize_small": T.ResizeSmall(key="x", smaller_size=4),
    "flatten": T.TreeFlattenWithPath(key="x"),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", SAME)
def test_tensors_give_what_arrays_give(name, dtype):
    record = {"x": IMAGE.astype(dtype), "y": np.int64(3)}
    expected = SAME[name].map(record)
    tensors = {key: tf.constant(value) for key, value in record.items()}
    ds = tf.data.Dataset.from_tensors(tensors).map(SAME[name].map)
    for actual in (SAME[name].map(tensors), next(iter(ds))):
        assert sorted(actual) == sorted(expected)
        for key in expected:
            value = np.asarray(actual[key])
            assert value.dtype == expected[key].dtype
            assert value.shape == expected[key].shape
            np.testing.assert_allclose(
                value.astype(np.float64),
                np.asarray(expected[key], np.float64),
                rtol=1e-5,
                atol=1e-3,
            )


def test_sizes_unknown_to_the_graph():
    spec = {"x": tf.TensorSpec([None, None, 3], tf.float32)}
    images = [IMAGE.astype(np.float32), IMAGE[:6, :4].astype(np.float32)]
    ds = tf.data.Dataset.from_generator(
        lambda: ({"x": image} for image in images), output_signature=spec
    )
    for transform in (
        T.Resize(key="x", min_size=4, method="bilinear"),
        T.Resize(key="x", max_size=4, method="area"),
        T.CenterCrop(key="x", shape=(3, None, None)),
        T.Gather(key="x", axis=1, indices=(0, -1)),
        T.ValueRange(key="x", vrange=(0, 1)),
    ):
        for actual, image in zip(ds.map(transform.map), images):
            expected = transform.map({"x": image})["x"]
            np.testing.assert_allclose(actual["x"], expected, rtol=1e-4, atol=1e-2)


def test_known_sizes_stay_known():
    ds = tf.data.Dataset.from_tensors({"x": IMAGE})
    crop = T.CenterCrop(key="x", shape=(2, None, None))
    resize = T.Resize(key="x", size=(4, 5))
    assert ds.map(crop.map).element_spec["x"].shape == (2, 12, 3)
    assert ds.map(resize.map).element_spec["x"].shape == (4, 5, 3)


def test_default_of_resize_for_floats_is_area():
    image = tf.constant(IMAGE, tf.float32)
    default = T.Resize(key="x", size=(3, 5)).map({"x": image})["x"]
    area = T.Resize(key="x", size=(3, 5), method="area").map({"x": IMAGE})["x"]
    np.testing.assert_allclose(default, area, rtol=1e-5)


def test_booleans_and_leading_axes_can_be_resized():
    mask = tf.constant(np.stack([IMAGE > 100] * 2))
    result = T.Resize(key="x", size=(4, 4)).map({"x": mask})["x"]
    assert result.dtype == tf.bool and result.shape == (2, 4, 4, 3)


def test_one_hot():
    one_hot = T.OneHot(key="x", num_classes=3, on=2.0)
    assert one_hot.map({"x": tf.constant(1)})["x"].numpy().tolist() == [0, 2, 0]
    labels = tf.constant([0, 2, -1], tf.uint8)
    assert one_hot.map({"x": labels})["x"].numpy().tolist() == [2, 0, 2]
    rows = T.OneHot(key="x", num_classes=3, multi=False).map({"x": labels})["x"]
    assert rows.numpy().tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_tensorflow_dtypes():
    assert T.Cast(key="x", dtype=tf.float32).dtype == np.float32
    assert T.Cast(key="x", dtype=tf.bfloat16).map({"x": 1.0})["x"].dtype == "bfloat16"
    with pytest.raises(TypeError, match="not a dtype of numbers"):
        T.Cast(key="x", dtype=tf.string)


def test_strings_are_refused_by_key():
    with pytest.raises(TypeError, match=r"Cast: field 'x': .* got string\[\]"):
        T.Cast(key="x", dtype="float32").map({"x": tf.constant("text")})


def test_index_out_of_range():
    with pytest.raises(IndexError, match="out of range"):
        T.Gather(key="x", axis=0, indices=(8,)).map({"x": tf.constant(IMAGE)})


def test_crop_that_does_not_fit():
    with pytest.raises(ValueError, match="larger than the field"):
        T.CenterCrop(key="x", shape=(9, None, None)).map({"x": tf.constant(IMAGE)})
    with pytest.raises(ValueError, match="has 2 axes"):
        T.CenterCrop(key="x", shape=(3, 3)).map({"x": tf.constant(IMAGE)})
