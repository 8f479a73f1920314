"""Modules that have moved can still be imported under their former names."""

import importlib
import pickle

import pytest

from kauldron import kd
from kauldron.data import compat


@pytest.mark.parametrize("old", sorted(compat._MOVED))
def test_former_module_gives_the_names_of_the_new_one(old):
    module = importlib.import_module(f"kauldron.data.{old}")
    real = importlib.import_module(f"kauldron.data.{compat._MOVED[old]}")
    for name, value in vars(real).items():
        if not name.startswith("_"):
            assert getattr(module, name) is value


@pytest.mark.parametrize(
    "path, name",
    [
        ("kauldron.data.drop_remainder", "DropRemainder"),
        ("kauldron.data.array_spec", "ArraySpec"),
        ("kauldron.data.iters.state_handler", "PyGrainCheckpointHandler"),
        ("kauldron.data.iterators.pygrain_handler", "PyGrainCheckpointRestore"),
        ("kauldron.data.py.tfds", "Tfds"),
        ("kauldron.data.transforms.normalize", "ValueRange"),
        ("kauldron.data.transforms.map_transforms", "Resize"),
    ],
)
def test_pickles_that_name_a_former_module_are_read(path, name):
    pickled = f"c{path}\n{name}\n.".encode()
    assert pickle.loads(pickled).__name__ == name


def test_other_names_are_missing_as_ever():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kauldron.data.array_specs")
    with pytest.raises(AttributeError, match="ArraySpec"):
        _ = kd.data.array_spec_of
