"""Random transforms of tensors."""

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs the extra kauldron[tf]")

import tensorflow as tf

from kauldron import kd

IMAGE = np.arange(8 * 9 * 2).reshape(8, 9, 2).astype(np.int32)
TRANSFORMS = {
    "flip": kd.data.tf.RandomFlipLeftRight(key=["x", "y"]),
    "crop": kd.data.tf.RandomCrop(key=["x", "y"], shape=(3, 4, None)),
    "inception": kd.data.tf.InceptionCrop(key=["x", "y"]),
}


def apply(transform, seed, value=IMAGE):
    record = {"x": tf.constant(value), "y": tf.constant(value * 10)}
    return {k: v.numpy() for k, v in transform.random_map(record, [seed, 7]).items()}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_seed_decides_and_all_keys_are_treated_alike(name):
    results = [apply(TRANSFORMS[name], seed) for seed in range(12)]
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(result["y"], result["x"] * 10)
        np.testing.assert_array_equal(result["x"], apply(TRANSFORMS[name], seed)["x"])
    assert len({result["x"].tobytes() for result in results}) > 1


def test_flip_mirrors_or_keeps():
    seen = set()
    for seed in range(20):
        result = apply(TRANSFORMS["flip"], seed)["x"]
        is_kept = np.array_equal(result, IMAGE)
        assert is_kept or np.array_equal(result, IMAGE[:, ::-1])
        seen.add(is_kept)
    assert seen == {True, False}


def test_flip_throws_one_coin_per_image_of_a_video():
    video = np.stack([IMAGE] * 16)
    result = apply(TRANSFORMS["flip"], 3, video)["x"]
    kept = sum(np.array_equal(frame, IMAGE) for frame in result)
    flipped = sum(np.array_equal(frame, IMAGE[:, ::-1]) for frame in result)
    assert kept + flipped == 16 and kept and flipped


def test_crop_is_a_piece_of_the_wanted_shape_from_everywhere():
    starts = set()
    for seed in range(100):
        piece = apply(TRANSFORMS["crop"], seed)["x"]
        top, left = divmod(piece[0, 0, 0] // 2, 9)
        np.testing.assert_array_equal(piece, IMAGE[top : top + 3, left : left + 4])
        starts.add((int(top), int(left)))
    assert {top for top, _ in starts} == set(range(6))
    assert {left for _, left in starts} == set(range(6))


def test_crop_that_does_not_fit():
    crop = kd.data.tf.RandomCrop(key="x", shape=(9, None, None))
    with pytest.raises(ValueError, match="larger than the field"):
        apply(crop, 0)


def test_inception_crop_keeps_the_dtype():
    for dtype in (np.uint8, np.float32, np.float16):
        crop = kd.data.tf.InceptionCrop(key="x", resize_size=(5, 6))
        result = apply(crop, 0, IMAGE.astype(dtype))["x"]
        assert result.dtype == dtype and result.shape == (5, 6, 2)


def test_resize_by_height_and_width():
    resize = kd.data.tf.Resize(key="x", height=4, width=5)
    image = IMAGE.astype(np.float32)
    area = kd.data.Resize(key="x", size=(4, 5), method="area").map({"x": image})["x"]
    np.testing.assert_allclose(
        resize.map({"x": tf.constant(image)})["x"], area, rtol=1e-5
    )
    result = resize.map({"x": tf.constant(IMAGE)})["x"]
    assert result.dtype == tf.int32 and result.shape == (4, 5, 2)
