"""Operations of RandAugment, one by one and as they are drawn."""

import collections
import pickle

import numpy as np
import pytest

from kauldron.contrib.data import RandAugment
from kauldron.contrib.data.rand_augment import OPERATIONS, Movement

ROW = np.array([[[10, 200, 30], [40, 50, 60], [250, 100, 0]]], np.uint8)
PHOTO = np.random.default_rng(0).integers(0, 256, (32, 24, 3), dtype=np.uint8)


def only(name, **options):
    excluded = [other for other in OPERATIONS if other != name]
    return RandAugment(image_key="x", exclude_ops=excluded, num_layers=1, **options)


def results(transform, image, count=30):
    """The different images that come out, the unchanged one left out."""
    images = [
        transform.random_map({"x": image}, np.random.default_rng(seed))["x"]
        for seed in range(count)
    ]
    assert all(x.dtype == np.uint8 and x.shape == image.shape for x in images)
    return {x.tobytes(): x for x in images if not np.array_equal(x, image)}.values()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Posterize", [[0, 192, 16], [32, 48, 48], [240, 96, 0]]),
        ("SolarizeAdd", [[120, 200, 140], [150, 160, 170], [250, 210, 110]]),
        ("Brightness", [[19, 255, 57], [76, 95, 114], [255, 190, 0]]),
        ("Invert", [[245, 55, 225], [215, 205, 195], [5, 155, 255]]),
        ("AutoContrast", [[0, 255, 127], [31, 0, 255], [255, 85, 0]]),
        # The grey values are 124, 48 and 133.
        ("Color", [[0, 255, 0], [32, 51, 70], [255, 70, 0]]),
        ("Contrast", [[0, 255, 0], [0, 3, 22], [255, 98, 0]]),
    ],
)
def test_colours_at_magnitude_ten(name, expected):
    (result,) = results(only(name), ROW)
    assert result[0].tolist() == expected


def test_solarize_inverts_what_is_bright():
    (result,) = results(only("Solarize", magnitude=5), ROW)
    assert result[0].tolist() == [[10, 55, 30], [40, 50, 60], [5, 100, 0]]
    assert not results(only("Solarize", magnitude=15), PHOTO)


def test_equalize_spreads_the_values():
    channel = np.repeat([10, 20, 30, 40], 256).reshape(32, 32)
    image = np.stack([channel] * 3, axis=-1).astype(np.uint8)
    (result,) = results(only("Equalize"), image)
    assert np.unique(result).tolist() == [0, 85, 171, 255]
    assert not results(only("Equalize"), ROW)  # too few pixels


def test_sharpness_keeps_the_border():
    image = np.zeros((3, 3, 3), np.uint8)
    image[1, 1] = 130
    (result,) = results(only("Sharpness"), image)
    # Smoothed is 5 / 13 of it, and the difference counts 1.9 times.
    assert result[1, 1].tolist() == [202] * 3
    assert not np.delete(result.reshape(9, 3), 4, axis=0).any()


def moved(movement, shape=(3, 3)):
    numbers = np.arange(np.prod(shape), dtype=np.uint8).reshape(*shape, 1)
    return movement.of_image(np.repeat(numbers, 3, axis=-1))[..., 0].tolist()


def test_pixels_come_from_the_nearest_place():
    right = Movement(np.eye(2), offset=(1, 0))
    assert moved(right) == [[1, 2, 128], [4, 5, 128], [7, 8, 128]]
    turned = Movement(np.array([[0, -1], [1, 0]]), is_centred=True)
    assert moved(turned) == [[2, 5, 8], [1, 4, 7], [0, 3, 6]]


@pytest.mark.parametrize(
    "name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"]
)
def test_images_move_both_ways(name):
    images = results(only(name, magnitude=3, translate_const=10), PHOTO)
    assert len(images) == 2
    for image in images:
        assert (image == 128).all(axis=-1).any()


def test_cutout_is_a_grey_square():
    for image in results(
        only("Cutout", cutout_const=3), np.zeros((20, 20, 3), np.uint8)
    ):
        rows, columns = np.nonzero(image[..., 0])
        assert set(image[rows, columns].ravel()) == {128}
        assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1) <= 36


def test_boxes_move_with_the_image():
    image = np.zeros((20, 40, 3), np.uint8)
    image[5:10, 10:20] = 255
    boxes = np.array([[0.25, 0.25, 0.5, 0.5]], np.float32)
    augment = only("TranslateX", translate_const=8, boxes_key="boxes")
    seen = set()
    for seed in range(20):
        record = {"x": image, "boxes": boxes, "y": 1}
        result = augment.random_map(record, np.random.default_rng(seed))
        left = np.flatnonzero(result["x"][7, :, 0] == 255)[0]
        assert result["boxes"].dtype == np.float32 and result["y"] == 1
        np.testing.assert_allclose(
            result["boxes"], [[0.25, left / 40, 0.5, (left + 10) / 40]], atol=1e-6
        )
        seen.add(int(left))
    assert seen == {2, 10, 18}


def test_boxes_of_turned_sheared_and_lost_images():
    shape = (10, 20, 3)
    boxes = np.array([[0.2, 0.3, 0.4, 0.6]])
    around = Movement(np.array([[-1, 0], [0, -1]]), is_centred=True)
    np.testing.assert_allclose(around.of_boxes(boxes, shape), [[0.6, 0.4, 0.8, 0.7]])
    sheared = Movement(np.array([[1, 0.5], [0, 1]]))
    np.testing.assert_allclose(sheared.of_boxes(boxes, shape), [[0.2, 0.2, 0.4, 0.55]])
    gone = Movement(np.eye(2), offset=(100, 0)).of_boxes(boxes, shape)
    np.testing.assert_allclose(gone, [[0.2, 0, 0.4, 0.05]])


def test_every_operation_is_as_likely_as_none():
    seen = collections.Counter()

    class Noting(RandAugment):
        def apply(self, name, image, boxes, strength, rng):
            seen[name] += 1
            return image, boxes

    augment = Noting(image_key="x", num_layers=10_000)
    augment.random_map({"x": ROW}, np.random.default_rng(0))
    assert sorted(seen) == sorted(OPERATIONS)
    seen["none"] = 10_000 - seen.total()
    assert all(abs(count / 10_000 - 1 / 17) < 0.01 for count in seen.values())
    seen.clear()
    half = Noting(image_key="x", num_layers=10_000, prob_to_apply=0.5)
    half.random_map({"x": ROW}, np.random.default_rng(0))
    assert abs(seen.total() / 10_000 - 8 / 17) < 0.03


def test_same_generator_same_image():
    augment = RandAugment(image_key="x", magnitude=15, magnitude_std=2.0)
    assert hash(augment) == hash(pickle.loads(pickle.dumps(augment)))
    first, again = (
        [
            augment.random_map({"x": PHOTO}, np.random.default_rng(i))["x"]
            for i in range(40)
        ]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert len({x.tobytes() for x in first}) > 20


def test_without_operations_nothing_changes():
    assert not results(RandAugment(image_key="x", exclude_ops=[*OPERATIONS]), PHOTO)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"'Rotation'.*Did you mean 'Rotate'"):
        RandAugment(image_key="x", exclude_ops=["Rotation"])
    augment, rng = RandAugment(image_key="x"), np.random.default_rng(0)
    with pytest.raises(ValueError, match="uint8 image"):
        augment.random_map({"x": PHOTO / 255}, rng)
    with pytest.raises(KeyError, match="'x'"):
        augment.random_map({"image": PHOTO}, rng)
