"""Transforms that choose their fields by a predicate."""

import dataclasses
import pickle

import numpy as np
import pytest

from kauldron.contrib import data as C
from kauldron.data import transforms as T


def test_predicates_pick_leaves_anywhere():
    image = np.arange(4).reshape(2, 2, 1)
    record = {"cams": [{"rgb_left": image, "depth": image}], "image": image, "y": 1}
    assert C.FlipUpsideDown().map(record)["image"] is image  # nothing was asked for
    result = C.FlipUpsideDown.matching_keys().map(record)
    np.testing.assert_array_equal(result["image"], image[::-1])
    np.testing.assert_array_equal(result["cams"][0]["rgb_left"], image[::-1])
    np.testing.assert_array_equal(result["cams"][0]["depth"], image)
    assert result["y"] == 1
    only_left = C.matching_keys(strs=("rgb",), strs_to_exclude=("left",))
    unchanged = C.FlipUpsideDown(should_transform_pred=only_left).map(record)
    np.testing.assert_array_equal(unchanged["cams"][0]["rgb_left"], image)


def test_paths_of_leaves_read_like_those_of_jax():
    paths = []

    def note(path, value):
        paths.append(path)
        return False

    C.FlipUpsideDown(should_transform_pred=note).map({"a": [{"image": 1}]})
    ((first, index, last),) = paths
    assert first == first.key == "a" and last == last.key == "image"
    assert index == index.idx == 0


def test_names_of_cameras_and_of_lists_count():
    image = np.arange(4).reshape(2, 2, 1)
    record = {"cam0": image, "depth": image, "images": [image]}
    here, in_py = (
        cls.matching_keys().map(record)
        for cls in (C.FlipUpsideDown, C.py.FlipUpsideDown)
    )
    assert here["cam0"] is image and here["depth"] is in_py["depth"] is image
    np.testing.assert_array_equal(in_py["cam0"], image[::-1])
    np.testing.assert_array_equal(here["images"][0], image[::-1])
    left_alone = C.py.PadImage.matching_keys(1, strs_to_exclude=("0",)).map(record)
    assert left_alone["cam0"] is image and left_alone["images"][0].shape == (4, 4, 1)


def test_random_predicate_transform_treats_all_leaves_alike():
    class Jitter(C.ElementWiseRandomTransformWithPredicate):
        def random_map_element(self, element, rng):
            return element + rng.integers(1000)

    record = {"image": 0, "nested": ({"img": 0},), "label": 0}
    jitter = Jitter(should_transform_pred=C.matching_keys())
    result = jitter.random_map(record, np.random.default_rng(0))
    assert result["image"] == result["nested"][0]["img"] > 0
    assert result["label"] == 0


@pytest.mark.parametrize(
    ("cls", "options", "by_key"),
    [
        (C.py.PadImage, {"pad": (1, 2)}, C.PadImage(key="x", pad=(1, 2))),
        (
            C.py.PadImage,
            {"pad": 1, "mode": "edge"},
            C.PadImageEdgeVal(key="x", pad=1),
        ),
        (
            C.ValueRange,
            {"vrange": (-1, 1), "in_vrange": (0, 99)},
            T.ValueRange(key="x", vrange=(-1, 1), in_vrange=(0, 99)),
        ),
        (C.Resize, {"size": (4, 5)}, T.Resize(key="x", size=(4, 5))),
        (C.Resize, {"height": 4, "width": 5}, T.Resize(key="x", size=(4, 5))),
        (
            C.py.Resize,
            {"min_size": 3, "method": "bicubic"},
            T.Resize(key="x", min_size=3, method="bicubic", antialias=False),
        ),
    ],
)
def test_predicate_forms_do_what_the_keyed_ones_do(cls, options, by_key):
    by_predicate = cls.matching_keys(**options)
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

    with pytest.raises(ValueError, match="both height and width"):
        C.Resize(height=3)


def test_a_predicate_form_may_have_arguments_of_its_own():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Preview(C.Resize):
        min_size: int = 2
        caption: str = ""

        def map_element(self, element):
            return self.caption, super().map_element(element).shape

    preview = Preview.matching_keys(caption="small")
    assert preview.map({"img": np.zeros((4, 6, 1))}) == {"img": ("small", (2, 3, 1))}


def test_resizing_chooses_the_method_by_the_kind_of_numbers():
    resize = C.Resize.matching_keys(height=1, width=2)
    image = np.arange(8).reshape(2, 4, 1)
    whole, real = (resize.map({"img": x})["img"] for x in (image, image.astype(float)))
    assert whole.ravel().tolist() == [5, 7] and whole.dtype == image.dtype
    assert real.ravel().tolist() == [2.5, 4.5]


def test_images_need_three_axes():
    with pytest.raises(ValueError, match="FlipUpsideDown expects"):
        C.FlipUpsideDown.matching_keys().map({"image": np.zeros(3)})
