"""Older module paths lead to the modules that hold their names now."""

import importlib
import pickle

import pytest

from kauldron import kontext


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("annotate", "Key KeyTree REQUIRED get_keypaths is_key_annotated"),
        ("filter_utils", "filter_by_path"),
        ("glob_paths", "GlobPath set_by_path"),
        ("path_builder", "DynamicPathBuilder AnnotatedPathBuilder"),
        ("path_parser", "parse_parts Wildcard PathSyntaxError"),
        ("paths", "Path get_by_path"),
        ("type_utils", "get_annotated"),
    ],
)
def test_module_path_is_importable(path, names):
    module = importlib.import_module(f"kauldron.kontext.{path}")
    assert module is getattr(kontext, path)
    for name in names.split():
        getattr(module, name)


def test_pickle_that_names_an_older_path_is_read():
    text = b"ckauldron.kontext.glob_paths\nGlobPath\n(S'a'\ntR."
    assert pickle.loads(text) == kontext.GlobPath("a")
