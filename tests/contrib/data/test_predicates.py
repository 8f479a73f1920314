"""Transforms that choose their fields by a predicate."""

import pickle

import numpy as np
import pytest

from kauldron.contrib import data as C
from kauldron.data import transforms as T


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
    ("by_predicate", "by_key"),
    [
        (C.py.PadImage(pad=(1, 2)), C.PadImage(key="x", pad=(1, 2))),
        (C.py.PadImage(pad=1, mode="edge"), C.PadImageEdgeVal(key="x", pad=1)),
        (
            C.py.ValueRange(vrange=(-1, 1), in_vrange=(0, 99)),
            T.ValueRange(key="x", vrange=(-1, 1), in_vrange=(0, 99)),
        ),
        (C.py.Resize(size=(4, 5)), T.Resize(key="x", size=(4, 5))),
        (
            C.py.Resize(min_size=3, method="bicubic"),
            T.Resize(key="x", min_size=3, method="bicubic"),
        ),
    ],
)
def test_predicate_forms_do_what_the_keyed_ones_do(by_predicate, by_key):
    image = np.arange(6 * 8 * 2, dtype=np.uint8).reshape(6, 8, 2)
    record = {"views": [{"rgb": image}], "label": image}
    assert pickle.loads(pickle.dumps(by_predicate)) == by_predicate
    for transform in (by_predicate, pickle.loads(pickle.dumps(by_predicate))):
        result = transform.map(record)
        expected = by_key.map({"x": image})["x"]
        np.testing.assert_array_equal(result["views"][0]["rgb"], expected)
        assert result["label"] is image


def test_arguments_of_predicate_forms_are_checked_when_they_are_made():
    with pytest.raises(ValueError, match="exactly one of size"):
        C.py.Resize()
    with pytest.raises(ValueError, match="both ends are equal"):
        C.py.ValueRange(vrange=(0, 1), in_vrange=(1, 1))


def test_images_need_three_axes():
    with pytest.raises(ValueError, match="FlipUpsideDown expects"):
        C.FlipUpsideDown().map({"image": np.zeros(3)})
