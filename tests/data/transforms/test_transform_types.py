"""Base classes for users, alone and in bare grain code."""

import dataclasses
import subprocess
import sys

import grain
import numpy as np
import pytest

from kauldron.data import transforms as T


class Double(T.MapTransform):
    def map(self, element):
        return element * 2


class IsEven(T.FilterTransform):
    def __init__(self, offset):
        self.offset = offset

    def filter(self, element):
        return (element + self.offset) % 2 == 0


@dataclasses.dataclass(frozen=True)
class AddNoise(T.RandomMapTransform):
    scale: int

    def random_map(self, element, rng):
        return element + rng.integers(self.scale)


def test_calling_a_transform_applies_it():
    assert Double()(3) == 6
    assert IsEven(1)(3)
    assert AddNoise(1)(3, np.random.default_rng(0)) == 3


@pytest.mark.parametrize(
    "cls", [T.MapTransform, T.FilterTransform, T.RandomMapTransform]
)
def test_bases_are_abstract(cls):
    with pytest.raises(TypeError, match="abstract"):
        cls()


@pytest.mark.parametrize("cls", [T.ElementWiseTransform, T.ElementWiseRandomTransform])
def test_element_wise_bases_are_abstract(cls):
    with pytest.raises(TypeError, match="abstract"):
        cls(key="x")


def test_transforms_in_bare_grain_map():
    source = [{"x": np.full((4, 4, 1), i, np.uint8), "y": i} for i in range(6)]
    ds = grain.MapDataset.source(source)
    ds = ds.map(T.ValueRange(key="x", vrange=(0, 1), in_vrange=(0, 5)))
    ds = ds.map(T.Elements(rename={"y": "label"})).map(T.AddConstants({"c": 1}))
    record = ds[5]
    assert record["label"] == 5 and record["c"] == 1
    np.testing.assert_allclose(record["x"], 1.0)


def test_transforms_in_bare_grain_filter():
    ds = grain.MapDataset.range(6).filter(IsEven(0))
    assert list(ds.to_iter_dataset()) == [0, 2, 4]


def test_random_transforms_in_bare_grain_are_deterministic_per_index():
    source = [{"x": np.arange(20), "y": np.arange(20)} for _ in range(8)]

    def make():
        crop = T.RandomCrop(key=["x", "y"], shape=(5,))
        return grain.MapDataset.source(source).seed(42).random_map(crop)

    first = [record["x"].tolist() for record in make()]
    again = [make()[i]["x"].tolist() for i in range(8)]
    assert first == again
    assert len({tuple(row) for row in first}) > 1
    assert all(r["x"].tolist() == r["y"].tolist() for r in make())


def test_user_random_transform_in_bare_grain():
    ds = grain.MapDataset.range(5).seed(1).random_map(AddNoise(1000))
    assert [ds[i] for i in range(5)] == [ds[i] for i in range(5)]


def test_importing_the_transforms_imports_no_heavy_library():
    code = (
        "import sys, kauldron.data.transforms\n"
        "heavy = ['jax', 'tensorflow', 'grain', 'PIL', 'cv2', 'torch', 'flax']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
