"""Older module paths lead to the names they used to hold."""

import importlib
import pickle

import pytest

from kauldron import ktyping as kt
from kauldron.ktyping import compat


@pytest.mark.parametrize("name", compat._MODULES)
def test_older_module_holds_its_names(name):
    module = importlib.import_module(f"kauldron.ktyping.{name}")
    assert dir(module)
    for attribute in dir(module):
        getattr(module, attribute)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(ImportError, match="other"):
        from kauldron.ktyping.dim_view import other  # noqa: F401


def test_older_module_is_an_attribute_of_an_import():
    from kauldron.ktyping.scope import ShapeScope

    from kauldron.ktyping import dim_view

    assert dim_view.dim is kt.dim
    assert ShapeScope is kt.ShapeScope


@pytest.mark.parametrize(
    "text, value",
    [
        (b"ckauldron.ktyping.missing\nMISSING\n.", kt.config.MISSING),
        (b"ckauldron.ktyping.shape_type\nShape\n.", kt.Shape),
        (b"ckauldron.ktyping.pytree_type\nPyTree\n.", kt.PyTree),
        (b"ckauldron.ktyping.shape_type\n_make\n(S'a b'\ntR.", kt.Shape["a b"]),
    ],
)
def test_pickles_that_name_an_older_path_are_read(text, value):
    assert pickle.loads(text) == value
