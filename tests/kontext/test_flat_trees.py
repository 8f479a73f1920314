"""Trees to flat dicts, and back."""

import collections
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import konfig, kontext
from kauldron.kontext import flatten_with_path, unflatten_with_path


class Pair(NamedTuple):
    left: Any
    right: Any


@flax.struct.dataclass
class Camera:
    pose: Any
    name: str = flax.struct.field(pytree_node=False, default="")


TREE = {"enc": {"w": 1, "layers": [2, {"odd key": 3}]}, "b": (4,)}


def test_keys_are_printed_paths():
    assert flatten_with_path(TREE) == {
        "b[0]": 4,
        "enc.layers[0]": 2,
        "enc.layers[1]['odd key']": 3,
        "enc.w": 1,
    }


def test_separator_joins_the_plain_parts():
    assert flatten_with_path(TREE, separator="/") == {
        "b/0": 4,
        "enc/layers/0": 2,
        "enc/layers/1/odd key": 3,
        "enc/w": 1,
    }


@pytest.mark.parametrize(
    ("tree", "options", "expected"),
    [
        ({"x": [1]}, {"prefix": "cfg.model"}, {"cfg.model.x[0]": 1}),
        ([1], {"prefix": "a"}, {"a[0]": 1}),
        ({"x": [1]}, {"prefix": "a/b", "separator": "/"}, {"a/b/x/0": 1}),
        ({"x": 1}, {"separator": "/"}, {"x": 1}),
        (5, {}, {"": 5}),
        (5, {"prefix": "a.b"}, {"a.b": 5}),
        (5, {"prefix": "a", "separator": "/"}, {"a": 5}),
    ],
)
def test_prefix_goes_in_front(tree, options, expected):
    assert flatten_with_path(tree, **options) == expected


@pytest.mark.parametrize("tree", [None, {}, [], (), {"a": None, "b": [{}, ()]}])
def test_none_and_empty_containers_have_no_entries(tree):
    assert flatten_with_path(tree) == {}


def test_order_is_that_of_jax():
    tree = {"b": 1, "a": [2, collections.OrderedDict(z=3, y=4)], "c": Pair(5, 6)}
    assert list(flatten_with_path(tree).values()) == jax.tree.leaves(tree)


def test_is_leaf_stops_as_in_jax():
    tree = {"a": [1, None], "b": None}
    flat = flatten_with_path(tree, is_leaf=lambda x: x is None or isinstance(x, list))
    assert flat == {"a": [1, None], "b": None}


def test_registered_classes_are_entered_by_their_keys():
    state = optax.adam(0.1).init({"w": jnp.zeros(2)})
    assert list(flatten_with_path(state)) == ["[0].count", "[0].mu.w", "[0].nu.w"]
    assert flatten_with_path({"c": Camera(pose={"x": 1}, name="n")}) == {"c.pose.x": 1}
    assert flatten_with_path(flax.core.freeze({"a": {"b": 1}})) == {"a.b": 1}


def test_unregistered_objects_are_leaves():
    class Plain:
        pass

    plain = Plain()
    assert flatten_with_path({"a": [plain]}) == {"a[0]": plain}


def test_keys_of_mixed_types_keep_insertion_order():
    assert flatten_with_path({"b": 1, 0: 2, "a": 3}) == {"b": 1, "[0]": 2, "a": 3}


def test_clashing_names_are_an_error():
    assert len(flatten_with_path({"a": {0: 1, "0": 2}})) == 2
    with pytest.raises(ValueError, match="would be called 'a/0'"):
        flatten_with_path({"a": {0: 1, "0": 2}}, separator="/")
    with pytest.raises(ValueError, match="would be called 'a/b'"):
        flatten_with_path({"a/b": 1, "a": {"b": 2}}, separator="/")


@pytest.mark.parametrize("config", [ml_collections.ConfigDict, konfig.ConfigDict])
def test_configs_are_flattened_at_any_depth_with_references_resolved(config):
    cfg = config({"width": 8, "inner": {"x": [1, {"y": 2}]}})
    cfg.inner.width = cfg.get_ref("width")
    cfg.many = [config({"z": 3}), cfg.get_ref("width")]
    assert flatten_with_path({"cfg": [cfg]}) == {
        "cfg[0].inner.width": 8,
        "cfg[0].inner.x[0]": 1,
        "cfg[0].inner.x[1].y": 2,
        "cfg[0].many[0].z": 3,
        "cfg[0].many[1]": 8,
        "cfg[0].width": 8,
    }


_keys = st.text(max_size=3) | st.sampled_from(["a", "b", "0", "*", "x.y", "é"])
_json_trees = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda t: (
        st.dictionaries(_keys, t, min_size=1, max_size=4)
        | st.lists(t, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


@given(_json_trees)
def test_unflatten_undoes_flatten(tree):
    assert unflatten_with_path(flatten_with_path(tree)) == tree


@given(_json_trees)
def test_every_flat_key_reads_its_leaf(tree):
    for path, leaf in flatten_with_path(tree).items():
        assert kontext.get_by_path(tree, path) == leaf


@given(_json_trees)
def test_leaves_and_order_are_those_of_jax(tree):
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    expected = [(str(kontext.Path.from_jax_path(path)), leaf) for path, leaf in entries]
    assert list(flatten_with_path(tree).items()) == expected


def test_unflatten_with_separator():
    flat = flatten_with_path({"enc": {"layers": [{"w": 1}, 2]}}, separator="/")
    assert unflatten_with_path(flat, separator="/") == {
        "enc": {"layers": [{"w": 1}, 2]}
    }


def test_lists_are_in_index_order_whatever_the_order_of_the_keys():
    flat = {f"a[{i}]": i for i in reversed(range(12))}
    assert unflatten_with_path(flat) == {"a": list(range(12))}


@pytest.mark.parametrize(
    ("flat", "expected"),
    [({}, {}), ({"": 5}, 5), ({"a[None]": 1, "a[1.5]": 2}, {"a": {None: 1, 1.5: 2}})],
)
def test_unflatten_of_special_cases(flat, expected):
    assert unflatten_with_path(flat) == expected


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"a[0]": 1, "a[2]": 2}, r"'a' do not make a list: \[0, 2\]. Expected 0 to 1"),
        ({"a[1]": 1}, "do not make a list"),
        ({"a[-1]": 1}, "do not make a list"),
        ({"a[0]": 1, "a.b": 2}, "do not make a list"),
        ({"a": 1, "a.b": 2}, "'a' is both a leaf and a node"),
        ({"": 1, "a": 2}, "both a leaf and a node"),
        ({"a.*": 1}, "is not the key of a dict"),
        ({"a[1:2]": 1}, "is not the key of a dict"),
        ({"a..b": 1}, "Invalid path"),
    ],
)
def test_flat_dicts_that_are_no_tree_are_an_error(flat, message):
    with pytest.raises(ValueError, match=message):
        unflatten_with_path(flat)


def test_arrays_are_leaves_and_not_copied():
    array = np.zeros(3)
    assert flatten_with_path({"a": array})["a"] is array
