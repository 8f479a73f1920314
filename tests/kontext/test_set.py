"""Overwriting what a path points to, in place or in a copy."""

import collections
import copy
import dataclasses
from typing import Any, NamedTuple

import flax
import flax.linen as nn
import ml_collections
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from kauldron import konfig, kontext
from kauldron.kontext import replace_by_path, set_by_path
from kauldron.path_grammar import Wildcard


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


def test_existing_value_is_overwritten():
    tree = {"a": {"b": [1, 2]}}
    assert set_by_path(tree, "a.b[1]", 5) == ["a.b[1]"]
    assert tree == {"a": {"b": [1, 5]}}


def test_last_key_may_be_new():
    tree = {"a": {}}
    assert set_by_path(tree, "a['odd key']", 5) == ["a['odd key']"]
    assert tree == {"a": {"odd key": 5}}


@pytest.mark.parametrize(
    "path",
    ["a.b", ("a", "b"), kontext.Path("a", "b"), kontext.GlobPath("a", "b"),
     kontext.path_builder_from("a", Any).b],
    ids=repr,
)  # fmt: skip
def test_every_form_of_a_path_is_accepted(path):
    tree = {"a": {"b": 1}}
    assert set_by_path(tree, path, 2) == ["a.b"]
    assert tree == {"a": {"b": 2}}


@pytest.mark.parametrize("path", [5, None, ["a"]])
def test_anything_else_is_a_type_error(path):
    with pytest.raises(TypeError, match="A path is"):
        set_by_path({}, path, 1)


@pytest.mark.parametrize("path", ["", (), kontext.Path()])
def test_empty_path_is_a_value_error(path):
    with pytest.raises(ValueError, match="empty path"):
        set_by_path({}, path, 1)


def test_missing_key_on_the_way_lists_the_available_keys():
    tree = {"model": {"layers": 1, "width": 2}}
    with pytest.raises(KeyError) as caught:
        set_by_path(tree, "model.layer.size", 5)
    text = str(caught.value)
    assert text.startswith("Cannot set 'model.layer.size': key 'layer' not found")
    assert "in 'model'" in text
    assert "Available keys: layers, width" in text
    assert "Did you mean 'layers'?" in text
    assert tree == {"model": {"layers": 1, "width": 2}}


def test_new_last_key_can_be_forbidden():
    tree = {"a": {"rate": 1}}
    with pytest.raises(KeyError, match="Did you mean 'rate'"):
        set_by_path(tree, "a.rat", 5, create=False)
    assert set_by_path(tree, "a.rate", 5, create=False) == ["a.rate"]
    assert tree == {"a": {"rate": 5}}


# ------------------------------------------------------------------------------------
# Lists
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 2, -1, -3])
def test_every_index_in_range_is_written(index):
    tree = {"l": [0, 1, 2]}
    expected = [0, 1, 2]
    expected[index] = "new"
    set_by_path(tree, ("l", index), "new")
    assert tree["l"] == expected


@pytest.mark.parametrize("error", [KeyError, IndexError])
@pytest.mark.parametrize("path", ["l[3]", "l[-4]", "l[3].x"])
def test_index_out_of_range_tells_the_length(path, error):
    with pytest.raises(error, match="list of length 3"):
        set_by_path({"l": [0, 1, 2]}, path, 1)


@pytest.mark.parametrize("part", ["x", 1.5, True, None])
def test_list_index_that_is_no_integer_is_a_type_error(part):
    with pytest.raises(TypeError, match="is not an index"):
        set_by_path({"l": [0, 1]}, ("l", part), 1)


def test_slice_writes_the_value_to_each_item():
    tree = {"l": [0, 1, 2, 3]}
    assert set_by_path(tree, "l[::2]", "x") == ["l[0]", "l[2]"]
    assert tree["l"] == ["x", 1, "x", 3]


def test_slice_on_the_way_enters_each_item():
    tree = {"l": [{"x": 0}, {"x": 0}, {"x": 0}]}
    assert set_by_path(tree, "l[1:].x", 5) == ["l[1].x", "l[2].x"]
    assert tree == {"l": [{"x": 0}, {"x": 5}, {"x": 5}]}


def test_slice_is_not_the_key_of_a_mapping():
    with pytest.raises(KeyError):
        set_by_path({"a": {}}, "a[0:1]", 1)


# ------------------------------------------------------------------------------------
# Wildcards
# ------------------------------------------------------------------------------------


def test_star_writes_in_every_child_and_reports_each_path():
    tree = {"a": {"x": [1, 2], "y": [3]}}
    assert set_by_path(tree, "a.*[0]", 0) == ["a.x[0]", "a.y[0]"]
    assert tree == {"a": {"x": [0, 2], "y": [0]}}


def test_star_creates_the_last_key_in_every_child():
    tree = {"evals": {"a": {}, "b": {"n": 1}}}
    assert set_by_path(tree, "evals.*.n", 5) == ["evals.a.n", "evals.b.n"]
    assert tree == {"evals": {"a": {"n": 5}, "b": {"n": 5}}}


@pytest.mark.parametrize("path", ["*.x", "*.x.y", "*.*.z"])
def test_leaf_under_star_fails_and_leaves_the_tree_untouched(path):
    tree = {"a": {"x": {"y": 1}}, "b": 5}
    before = copy.deepcopy(tree)
    with pytest.raises(ValueError, match=r"Cannot mutate leaf '.*' \(int\)"):
        set_by_path(tree, path, 0)
    assert tree == before


def test_leaf_on_the_way_is_named():
    with pytest.raises(ValueError, match=r"Cannot mutate leaf 'a.b' \(int\)"):
        set_by_path({"a": {"b": 1}}, "a.b.c.d", 0)


def test_double_star_writes_wherever_the_name_exists():
    tree = {"x": 1, "a": {"x": 2, "b": [{"x": 3}, {"y": 4}]}, "c": 5}
    assert set_by_path(tree, "**.x", 0) == ["x", "a.x", "a.b[0].x"]
    assert tree == {"x": 0, "a": {"x": 0, "b": [{"x": 0}, {"y": 4}]}, "c": 5}


def test_double_star_without_match_writes_nothing():
    tree = {"a": {"b": 1}}
    assert set_by_path(tree, "**.nothing", 0) == []
    assert set_by_path(tree, "**.nothing.deep", 0) == []
    assert tree == {"a": {"b": 1}}


def test_after_the_first_part_behind_double_star_all_is_strict():
    tree = {"opt": {}, "enc": {"opt": {"lr": 1}}}
    assert set_by_path(tree, "**.opt.lr", 5) == ["opt.lr", "enc.opt.lr"]
    assert tree == {"opt": {"lr": 5}, "enc": {"opt": {"lr": 5}}}
    with pytest.raises(KeyError, match="Available keys: lr"):
        set_by_path(tree, "**.opt.schedule.lr", 5)


def test_outermost_match_wins_and_the_new_value_is_not_entered():
    tree = {"b": {"b": 1}, "c": {"b": {"x": {"b": 2}}}}
    value = {"b": {"b": "deep"}}
    assert set_by_path(tree, "**.b", value) == ["b", "c.b"]
    assert tree == {"b": value, "c": {"b": value}}
    assert value == {"b": {"b": "deep"}}


def test_double_star_followed_by_star_is_a_regular_glob():
    tree = {"b": 0, "x": {"b": 1, "y": {"b": 2}}, "z": 3}
    assert set_by_path(tree, "**.*.b", 9) == ["x.b", "x.y.b"]
    assert tree == {"b": 0, "x": {"b": 9, "y": {"b": 9}}, "z": 3}


def test_several_double_stars_write_each_place_once():
    tree = {"a": {"b": {"a": {"x": 1}}}}
    assert set_by_path(tree, "**.a.**.x", 0) == ["a.b.a.x"]
    assert set_by_path(tree, "**.**.x", 0) == ["a.b.a.x"]


def test_negative_index_after_double_star_keeps_the_outermost():
    tree = [1, [2, 3]]
    assert set_by_path(tree, "**[-1]", 0) == ["[1]"]
    assert tree == [1, 0]


@pytest.mark.parametrize("path", ["a.*", "a.**", "*", ("a", "*"), ("a", Wildcard.STAR)])
def test_trailing_wildcard_is_a_value_error(path):
    with pytest.raises(ValueError, match="Wildcards cannot be located"):
        set_by_path({"a": {"b": 1}}, path, 0)


def test_star_key_in_quotes_is_a_plain_key():
    tree = {"a": {"*": 1, "b": 2}}
    assert set_by_path(tree, "a['*']", 5) == ["a['*']"]
    assert set_by_path(tree, kontext.GlobPath("a", "*"), 6) == ["a['*']"]
    assert tree == {"a": {"*": 6, "b": 2}}


def test_star_in_a_tuple_is_a_wildcard():
    tree = {"a": {"x": 1}, "b": {"x": 2}}
    assert set_by_path(tree, ("*", "x"), 0) == ["a.x", "b.x"]


def test_error_in_a_later_branch_leaves_the_tree_untouched():
    tree = {"a": {"l": [1]}, "b": {"l": []}}
    before = copy.deepcopy(tree)
    with pytest.raises(KeyError, match="length 0"):
        set_by_path(tree, "*.l[0]", 5)
    assert tree == before


# ------------------------------------------------------------------------------------
# Immutable nodes below mutable ones
# ------------------------------------------------------------------------------------


def test_immutable_nodes_are_rebuilt_and_put_back():
    pair, point = Pair({"k": 1}, 2), Point(x=(1, 2))
    tree = {"pair": pair, "points": [point], "frozen": flax.core.freeze({"a": 1})}
    assert set_by_path(tree, "pair.right", 5) == ["pair.right"]
    assert set_by_path(tree, "points[0].x[1]", 6) == ["points[0].x[1]"]
    assert set_by_path(tree, "frozen.a", 7) == ["frozen.a"]
    assert tree["pair"] == Pair({"k": 1}, 5)
    assert tree["points"] == [Point(x=(1, 6))]
    assert tree["frozen"] == flax.core.freeze({"a": 7})
    assert (pair.right, point.x) == (2, (1, 2))


def test_several_writes_into_one_immutable_node():
    tree = {"t": ({"x": 1}, (Point(x=1), Point(x=2)))}
    assert set_by_path(tree, "**.x", 0) == ["t[0].x", "t[1][0].x", "t[1][1].x"]
    assert tree == {"t": ({"x": 0}, (Point(x=0), Point(x=0)))}


def test_mutable_node_inside_an_immutable_root_is_written_in_place():
    inner = {"a": 1}
    assert set_by_path((inner,), "[0].a", 5) == ["[0].a"]
    assert inner == {"a": 5}


@pytest.mark.parametrize("root", [(1, 2), Pair(1, 2), Point(x=1)])
def test_immutable_root_points_to_replace_by_path(root):
    path = "[0]" if isinstance(root, tuple) else "x"
    with pytest.raises(ValueError, match="replace_by_path"):
        set_by_path(root, path, 5)


def test_unknown_field_of_a_dataclass_is_a_key_error():
    with pytest.raises(KeyError, match="Available keys: x, y"):
        set_by_path({"p": Point(x=1)}, "p.z", 5)


# ------------------------------------------------------------------------------------
# Configs
# ------------------------------------------------------------------------------------


def test_config_nodes_in_a_list_are_set_through_the_config():
    cfg = ml_collections.ConfigDict({"evals": {"a": {"n": 1}, "b": {"n": 2}}})
    cfg.layers = [ml_collections.ConfigDict({"width": 4}) for _ in range(2)]
    assert set_by_path(cfg, "evals.*.n", 5) == ["evals.a.n", "evals.b.n"]
    assert set_by_path(cfg, "layers.*.width", 8) == [
        "layers[0].width",
        "layers[1].width",
    ]
    assert cfg.evals.b.n == 5
    assert [layer.width for layer in cfg.layers] == [8, 8]


def test_config_keeps_its_own_type_checks():
    cfg = ml_collections.ConfigDict({"a": {"n": 1}})
    with pytest.raises(TypeError) as caught:
        set_by_path(cfg, "a.n", "text")
    assert any("Cannot set 'a.n'" in note for note in caught.value.__notes__)
    assert cfg.a.n == 1


def test_field_that_must_be_set_can_be_set():
    cfg = ml_collections.ConfigDict({"a": {}})
    cfg.a.n = ml_collections.config_dict.required_placeholder(int)
    assert set_by_path(cfg, "**.n", 5) == ["a.n"]
    assert cfg.a.n == 5


def test_what_a_config_node_calls_is_not_one_of_its_children():
    layer = {"__qualname__": "module:Layer", "inner": {"n": 1}}
    cfg = ml_collections.ConfigDict({"layer": layer})
    assert set_by_path(cfg, "layer.*.n", 5) == ["layer.inner.n"]
    assert set_by_path(cfg, "layer.__qualname__", "m:B") == ["layer.__qualname__"]


def test_konfig_nodes_keep_their_types_and_positional_arguments():
    cfg = konfig.ConfigDict({"evals": [{"n": 1}, {"n": 2, "deep": {"n": 3}}]})
    cfg.model = {"__qualname__": "module:Model", "0": 4, "width": 5}
    written = ["evals[0].n", "evals[1].n", "evals[1].deep.n"]
    assert set_by_path(cfg, "**.n", 7) == written
    assert set_by_path(cfg, "evals.*.n", 8) == written[:2]
    assert [cfg.evals[0].n, cfg.evals[1].n, cfg.evals[1].deep.n] == [8, 8, 7]
    with pytest.raises(TypeError):
        set_by_path(cfg, "evals[0].n", {"not": "an int"})
    set_by_path(cfg, "model[0]", 6)
    set_by_path(cfg, "model[1]", "appended")
    assert (cfg.model[0], cfg.model["1"]) == (6, "appended")
    assert kontext.get_by_path(cfg, "model[-1]") == "appended"


# ------------------------------------------------------------------------------------
# Against the definition
# ------------------------------------------------------------------------------------

_dicts = st.recursive(
    st.integers(),
    lambda t: st.dictionaries(st.sampled_from("abc"), t, min_size=1, max_size=3),
    max_leaves=15,
)
_globs = st.lists(st.sampled_from(["a", "b", "*", "**"]), max_size=3)


@given(st.dictionaries(st.sampled_from("abc"), _dicts, min_size=1), _globs)
def test_what_is_written_is_never_inside_of_something_written(tree, middle):
    glob = ".".join(["**", *middle, "a"])
    existing = {path.parts for path, _ in kontext.iter_by_path(tree, glob)}
    try:
        written = set_by_path(tree, glob, 0)
    except (KeyError, ValueError):
        reject()  # strict after the first part behind `**`: draw another example
    places = {kontext.Path.from_str(path).parts for path in written}

    def is_outermost(place):
        return not any(place[:n] in places | existing for n in range(1, len(place)))

    assert all(is_outermost(place) for place in places)
    assert {place for place in existing if is_outermost(place)} <= places


#
# A changed copy of a tree
#


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
