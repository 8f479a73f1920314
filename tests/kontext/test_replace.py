"""A changed copy of a tree."""

import collections
import copy
import dataclasses
from typing import Any, NamedTuple

import flax
import flax.linen as nn
import ml_collections
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kauldron import kontext
from kauldron.kontext import replace_by_path, set_by_path


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


class Block(nn.Module):
    width: int = 1
    inner: Any = None


def test_replace_shares_everything_that_is_not_on_the_way():
    tree = {"a": {"b": [1, 2]}, "c": {"d": 3}}
    before = copy.deepcopy(tree)
    new = replace_by_path(tree, "a.b[0]", 5)
    assert new == {"a": {"b": [5, 2]}, "c": {"d": 3}}
    assert tree == before
    assert new["c"] is tree["c"]


@pytest.mark.parametrize(
    ("tree", "path", "expected"),
    [
        ((1, (2, 3)), "[1][0]", (1, (5, 3))),
        (Pair(1, Pair(2, 3)), "right.left", Pair(1, Pair(5, 3))),
        (Pair(1, 2), "[0]", Pair(5, 2)),
        (Point(x=Point(x=1)), "x.y", Point(x=Point(x=1, y=5))),
        (Block(inner=Block()), "inner.width", Block(inner=Block(width=5))),
        (flax.core.freeze({"a": {"b": 1}}), "a.b", flax.core.freeze({"a": {"b": 5}})),
        ({"a": 1}, "new", {"a": 1, "new": 5}),
        ([{"x": 1}, {"x": 2}], "*.x", [{"x": 5}, {"x": 5}]),
        (collections.OrderedDict(a=1), "a", collections.OrderedDict(a=5)),
    ],
    ids=repr,
)
def test_replace_works_on_all_kinds_of_nodes(tree, path, expected):
    new = replace_by_path(tree, path, 5)
    assert new == expected
    assert type(new) is type(expected)
    assert new != tree


def test_replace_keeps_what_a_dict_subclass_carries():
    tree = collections.defaultdict(list, a=1)
    new = replace_by_path(tree, "a", 5)
    assert new["missing"] == []
    assert new["a"] == 5
    assert tree == {"a": 1}


def test_replace_in_a_config_leaves_the_config_as_it_is():
    cfg = ml_collections.ConfigDict({"a": {"n": 1}, "b": 2})
    new = replace_by_path(cfg, "a.n", 5)
    assert (new.a.n, cfg.a.n, new.b) == (5, 1, 2)


_trees = st.recursive(
    st.integers(),
    lambda t: (
        st.dictionaries(st.text("ab", max_size=2), t, max_size=3)
        | st.lists(t, max_size=3)
        | st.lists(t, max_size=3).map(tuple)
    ),
)


@given(_trees.filter(lambda t: isinstance(t, (dict, list))), st.data())
def test_reading_gives_what_was_set_or_replaced(tree, data):
    leaves = kontext.flatten_with_path(tree)
    new = ["['new']"] if isinstance(tree, dict) else []
    assume(new or leaves)
    path = data.draw(st.sampled_from([*leaves, *new]))
    before = copy.deepcopy(tree)
    replaced = replace_by_path(tree, path, "value")
    assert tree == before
    set_by_path(tree, path, "value")
    assert tree == replaced
    assert kontext.get_by_path(tree, path) == "value"
