"""Iterating over matches, and matching without a tree."""

import dataclasses
from typing import Any

import flax.linen as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kontext
from kauldron.kontext import Path, iter_by_path, path_matches


def _found(tree, glob):
    return {str(path): value for path, value in iter_by_path(tree, glob)}


def test_matches_come_in_order_with_their_concrete_path():
    params = {"enc": {"w": 1, "b": 2}, "dec": {"w": 3}, "layers": [{"w": 4}]}
    assert list(iter_by_path(params, "**.w")) == [
        (Path("enc", "w"), 1),
        (Path("dec", "w"), 3),
        (Path("layers", 0, "w"), 4),
    ]


def test_branches_without_a_match_are_passed_over():
    tree = {"a": {"x": 1}, "b": {"y": 2}, "c": 3}
    assert _found(tree, "*.x") == {"a.x": 1}
    assert _found(tree, "nothing.x") == {}
    assert _found(tree, "c.x") == {}


def test_trailing_double_star_gives_the_node_and_all_below():
    assert _found({"a": {"b": [1]}}, "a.**") == {
        "a": {"b": [1]},
        "a.b": [1],
        "a.b[0]": 1,
    }


def test_overlapping_double_stars_give_each_match_once():
    tree = {"a": {"a": {"a": 1}}}
    paths = [str(path) for path, _ in iter_by_path(tree, "**.a.**.a")]
    assert sorted(paths) == ["a.a", "a.a.a"]
    assert len(list(iter_by_path(tree, "**.**.**"))) == 4


def test_attributes_and_slices_of_leaves_are_read_as_by_get():
    tree = {"a": {"x": np.arange(4)}, "b": {"x": np.arange(2)}}
    assert _found(tree, "*.x.shape[0]") == {"a.x.shape[0]": 4, "b.x.shape[0]": 2}
    found = _found(tree, "**.x[1:].**")
    assert list(found) == ["a.x[1:]", "b.x[1:]"]
    assert found["b.x[1:]"].tolist() == [1]


@dataclasses.dataclass
class Point:
    x: Any


def test_fields_of_dataclasses_are_children():
    assert _found({"p": Point(x=Point(x=1))}, "p.*.x") == {"p.x.x": 1}


class Block(nn.Module):
    width: int = 1
    inner: Any = None

    def __call__(self):
        return _found(self, "**.width")


def test_search_in_a_flax_module_does_not_climb_to_its_parent():
    assert Block(inner=Block(width=3)).apply({}) == {"width": 1, "inner.width": 3}


@pytest.mark.parametrize(
    ("path", "glob", "expected"),
    [
        ("params.enc.bias", "params.**.bias", True),
        (("params", 0), "params.*", True),
        (Path("a"), kontext.GlobPath.from_str("a.**"), True),
        ("a.b", ("a", "*"), True),
        ("a.b.c", "a.*", False),
    ],
)
def test_path_matches_takes_every_form(path, glob, expected):
    assert path_matches(path, glob) is expected


def test_path_that_is_matched_has_no_wildcards():
    with pytest.raises(ValueError, match="wildcard"):
        path_matches("a.*", "a.*")


_trees = st.recursive(
    st.integers(),
    lambda t: (
        st.dictionaries(st.sampled_from("abc"), t, max_size=3) | st.lists(t, max_size=3)
    ),
    max_leaves=12,
)
_globs = st.lists(st.sampled_from(["a", "b", "*", "**"]), max_size=5).map(".".join)


@given(_trees, _globs)
def test_iteration_and_matching_agree(tree, glob):
    everything = [path for path, _ in iter_by_path(tree, "**")]
    expected = [path for path in everything if path_matches(path, glob)]
    found = [path for path, _ in iter_by_path(tree, glob)]
    assert len(found) == len(set(found))
    assert set(found) == set(expected)
