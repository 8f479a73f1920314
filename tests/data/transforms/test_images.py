"""Random transforms: crops and flips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data import transforms as T
from kauldron.data.engine.keys import RecordRngs


def rng(seed=0):
    return np.random.Generator(np.random.Philox(seed))


IMAGE = np.arange(8 * 9 * 2).reshape(8, 9, 2)


def test_all_keys_get_the_same_draws():
    record = {"image": IMAGE, "mask": IMAGE * 10, "other": 1}
    for seed in range(20):
        crop = T.RandomCrop(key=["image", "mask"], shape=(4, 4, None))
        result = crop.random_map(record, rng(seed))
        np.testing.assert_array_equal(result["mask"], result["image"] * 10)
        flip = T.RandomFlipLeftRight(key=["image", "mask"])
        result = flip.random_map(record, rng(seed))
        np.testing.assert_array_equal(result["mask"], result["image"] * 10)
        inception = T.InceptionCrop(key=["image", "mask"])
        result = inception.random_map(record, rng(seed))
        np.testing.assert_array_equal(result["mask"], result["image"] * 10)


def test_same_generator_same_result_and_other_generators_other_results():
    for transform in (
        T.RandomCrop(key="image", shape=(4, 4, None)),
        T.RandomFlipLeftRight(key="image"),
        T.InceptionCrop(key="image", resize_size=(4, 4)),
    ):
        results = [
            transform.random_map({"image": IMAGE}, rng(seed))["image"]
            for seed in (*range(10), *range(10))
        ]
        for first, second in zip(results[:10], results[10:]):
            np.testing.assert_array_equal(first, second)
        assert len({result.tobytes() for result in results}) > 1


def test_user_transform_with_several_keys():
    class Jitter(T.ElementWiseRandomTransform):
        def random_map_element(self, element, rng):
            return element + rng.integers(1000)

    result = Jitter(key={"a": "a", "b": "c"}).random_map({"a": 0, "b": 0}, rng())
    assert result["a"] == result["c"] > 0
    assert result["b"] == 0


def test_user_batch_method_gets_every_generator_in_its_initial_state():
    class Jitter(T.ElementWiseRandomTransform):
        def random_map_element(self, element, rng):
            return element + rng.integers(1000)

        def random_map_element_batch(self, elements, rngs):
            return elements + np.array([r.integers(1000) for r in rngs])

    form = T.batch_form(Jitter(key=["a", "b"]))
    rngs = RecordRngs(3, np.arange(4))
    columns = form({"a": np.zeros(4, int), "b": np.zeros(4, int)}, rngs)
    np.testing.assert_array_equal(columns["a"], columns["b"])
    assert len(set(columns["a"].tolist())) > 1


def test_missing_key():
    for transform in (
        T.RandomCrop(key=["image", "mask"], shape=(4, 4, None)),
        T.RandomFlipLeftRight(key="image"),
    ):
        with pytest.raises(KeyError, match="missing keys"):
            transform.random_map({"x": IMAGE}, rng())


# ----------------------------------------------------------------------------
# RandomFlipLeftRight
# ----------------------------------------------------------------------------


def test_flip_is_decided_by_one_boolean_draw():
    flip = T.RandomFlipLeftRight(key="image")
    for seed in range(8):
        keep = rng(seed).integers(2, size=(1, 1, 1), dtype=bool).item()
        expected = IMAGE if keep else IMAGE[:, ::-1]
        result = flip.random_map({"image": IMAGE}, rng(seed))["image"]
        np.testing.assert_array_equal(result, expected)


def test_flip_draws_one_coin_per_leading_index():
    video = np.stack([IMAGE] * 16).reshape(4, 4, *IMAGE.shape)
    keep = rng().integers(2, size=(4, 4, 1, 1, 1), dtype=bool)
    result = T.RandomFlipLeftRight(key="image").random_map({"image": video}, rng())
    expected = np.where(keep, video, video[..., ::-1, :])
    np.testing.assert_array_equal(result["image"], expected)
    assert 0 < keep.sum() < 16


@pytest.mark.parametrize("shape", [(4,), (4, 4)])
def test_flip_needs_a_channel(shape):
    flip = T.RandomFlipLeftRight(key="x")
    with pytest.raises(ValueError, match=r"\(..., h, w, c\)"):
        flip.random_map({"x": np.zeros(shape)}, rng())
    with pytest.raises(ValueError, match=r"\(..., h, w, c\)"):
        flip.random_map_batch({"x": np.zeros((2, *shape))}, RecordRngs(0, np.arange(2)))


# ----------------------------------------------------------------------------
# RandomCrop
# ----------------------------------------------------------------------------


def test_crop_draws_one_start_per_cropped_axis_in_order():
    crop = T.RandomCrop(key="image", shape=(3, None, 1))
    for seed in range(5):
        generator = rng(seed)
        top, channel = generator.integers(0, 6), generator.integers(0, 2)
        expected = IMAGE[top : top + 3, :, channel : channel + 1]
        result = crop.random_map({"image": IMAGE}, rng(seed))["image"]
        np.testing.assert_array_equal(result, expected)


def test_crop_of_full_size_draws_nothing():
    generator = rng()
    state = generator.bit_generator.state["state"]["counter"].copy()
    crop = T.RandomCrop(key="image", shape=(8, None, 2))
    result = crop.random_map({"image": IMAGE}, generator)["image"]
    np.testing.assert_array_equal(result, IMAGE)
    np.testing.assert_array_equal(
        generator.bit_generator.state["state"]["counter"], state
    )


def test_every_place_is_reached():
    crop = T.RandomCrop(key="x", shape=(2,))
    starts = {
        int(crop.random_map({"x": np.arange(5)}, rng(seed))["x"][0])
        for seed in range(100)
    }
    assert starts == {0, 1, 2, 3}


def test_crop_negative_size():
    with pytest.raises(ValueError, match="negative"):
        T.RandomCrop(key="x", shape=(-1, 2))


@pytest.mark.parametrize("shape", [(4, 4), (9, 4, None), (4, 4, 4, 4)])
def test_crop_that_does_not_fit_shows_both_shapes(shape):
    crop = T.RandomCrop(key="image", shape=shape)
    with pytest.raises(ValueError) as error:
        crop.random_map({"image": IMAGE}, rng())
    assert "(8, 9, 2)" in str(error.value) and str(shape) in str(error.value)


def test_crop_of_fields_with_different_sizes_names_them():
    crop = T.RandomCrop(key=["image", "mask"], shape=(4, 4, None))
    record = {"image": IMAGE, "mask": IMAGE[:7, :, :1]}
    with pytest.raises(ValueError) as error:
        crop.random_map(record, rng())
    text = str(error.value)
    assert "'image': (8, 9, 2)" in text and "'mask': (7, 9, 1)" in text
    columns = {name: value[None] for name, value in record.items()}
    with pytest.raises(ValueError, match="different sizes"):
        crop.random_map_batch(columns, RecordRngs(0, np.arange(1)))


def test_crop_of_fields_that_differ_only_in_kept_axes():
    crop = T.RandomCrop(key=["image", "mask"], shape=(4, 4, None))
    record = {"image": IMAGE, "mask": IMAGE[..., :1]}
    result = crop.random_map(record, rng())
    np.testing.assert_array_equal(result["image"][..., :1], result["mask"])


# ----------------------------------------------------------------------------
# InceptionCrop
# ----------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    seed=st.integers(0, 2**32),
    low=st.floats(0.01, 1),
)
def test_inception_crop_is_a_box_of_the_wanted_area(shape, seed, low):
    image = np.arange(shape[0] * shape[1]).reshape(*shape, 1)
    crop = T.InceptionCrop(key="x", area_range=(low, 1.0))
    box = crop.random_map({"x": image}, rng(seed))["x"][..., 0]
    height, width = box.shape
    assert 1 <= height <= shape[0] and 1 <= width <= shape[1]
    first = box[0, 0]
    rows, columns = np.arange(height)[:, None], np.arange(width)[None, :]
    np.testing.assert_array_equal(box, first + rows * shape[1] + columns)
    if (height, width) != shape:
        assert height * width >= low * image.size - (height + width)  # rounding
        assert (width - 0.5) / (height + 0.5) <= 4 / 3
        assert (width + 0.5) / (height - 0.5) >= 3 / 4


def test_inception_crop_resizes_and_keeps_the_dtype():
    for dtype in (np.uint8, np.float32, np.float16, bool):
        crop = T.InceptionCrop(key="image", resize_size=(5, 6))
        result = crop.random_map({"image": (IMAGE % 2).astype(dtype)}, rng())["image"]
        assert result.dtype == dtype and result.shape == (5, 6, 2)


def test_inception_crop_of_bytes_rounds():
    white = np.full((31, 33, 3), 255, np.uint8)
    crop = T.InceptionCrop(key="x", resize_size=(7, 7))
    assert (crop.random_map({"x": white}, rng())["x"] == 255).all()


@pytest.mark.parametrize(
    "arguments",
    [
        {"resize_size": 3},
        {"resize_size": (0, 3)},
        {"resize_method": "best"},
        {"area_range": (0.0, 1.0)},
        {"area_range": (0.5, 0.2)},
        {"area_range": (0.5, 1.2)},
        {"area_range": 0.5},
        {"area_range": ("a", "b")},
    ],
)
def test_inception_crop_refuses_bad_arguments_at_construction(arguments):
    with pytest.raises(ValueError):
        T.InceptionCrop(key="x", **arguments)


def test_inception_crop_needs_a_channel():
    with pytest.raises(ValueError, match=r"\(..., h, w, c\)"):
        T.InceptionCrop(key="x").random_map({"x": np.zeros((4, 4))}, rng())
