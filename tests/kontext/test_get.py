"""Reading what a path points to."""

import collections
import dataclasses
import functools
import pickle
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from kauldron import kontext
from kauldron.kontext import PathNotFoundError, PathSyntaxError, get_by_path


@dataclasses.dataclass
class Box:
    """Any object with attributes."""

    cams: Any = None
    pose: Any = None
    xyz: Any = None


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    "tree",
    [
        {"cams": [0, {"pose": {"xyz": 5}}]},
        Box(cams=[0, {"pose": {"xyz": 5}}]),
        {"cams": (0, Box(pose={"xyz": 5}))},
        {"cams": [0, {"pose": Box(xyz=5)}]},
        Box(cams=(0, Box(pose=Box(xyz=5)))),
        flax.core.freeze({"cams": [0, {"pose": {"xyz": 5}}]}),
        ml_collections.ConfigDict({"cams": [0, {"pose": {"xyz": 5}}]}),
    ],
    ids=range(7),
)  # fmt: skip
def test_path_reads_through_items_and_attributes_alike(tree):
    assert get_by_path(tree, "cams[1].pose.xyz") == 5


def test_every_form_of_a_path_is_accepted():
    tree = {"a": [{"b": 5}]}
    builder = kontext.path_builder_from("a", Any)
    forms = [
        "a[0].b",
        ("a", 0, "b"),
        kontext.Path("a", 0, "b"),
        kontext.GlobPath("a", 0, "b"),
        builder[0].b,
    ]
    assert [get_by_path(tree, form) for form in forms] == [5] * 5


@pytest.mark.parametrize("path", [5, ["a"], b"a", 1.5, {}])
def test_anything_else_is_a_type_error_naming_the_type(path):
    with pytest.raises(TypeError, match=type(path).__name__):
        get_by_path({}, path)


@pytest.mark.parametrize("empty", ["", (), kontext.Path()])
def test_empty_path_is_the_object_itself(empty):
    tree = {"a": 1}
    assert get_by_path(tree, empty) is tree


def test_no_path_gives_the_default_or_none():
    assert get_by_path({"a": 1}, None) is None
    assert get_by_path({"a": 1}, None, default=3) == 3


def test_values_are_not_copied():
    inner = [1]
    assert get_by_path({"a": {"b": inner}}, "a.b") is inner


@pytest.mark.parametrize("path", ["a.*", "**", kontext.GlobPath.from_str("a.*")])
def test_wildcards_are_refused(path):
    with pytest.raises(ValueError, match="wildcard"):
        get_by_path({"a": {"b": 1}}, path, default=None)


def test_star_in_a_tuple_is_a_plain_key():
    assert get_by_path({"a": {"*": 5}}, ("a", "*")) == 5


# ------------------------------------------------------------------------------------
# Items first, attributes second
# ------------------------------------------------------------------------------------


def test_key_named_like_a_method_is_found():
    assert get_by_path({"keys": 5}, "keys") == 5
    assert get_by_path({"a": {"items": 6}}, "a.items") == 6


class _Dict(dict):
    note = "attribute"


@pytest.mark.parametrize(
    "container",
    [{}, [], (), "text", _Dict(), collections.OrderedDict(), Pair(1, 2),
     flax.core.freeze({}), ml_collections.ConfigDict(), collections.UserDict()],
    ids=lambda c: type(c).__name__,
)  # fmt: skip
@pytest.mark.parametrize("name", ["keys", "index", "count", "items", "upper", "copy"])
def test_methods_of_containers_are_not_values(container, name):
    assert get_by_path(container, name, default="miss") == "miss"


def test_other_attributes_of_containers_are_values():
    assert get_by_path({"a": _Dict(note2=1)}, "a.note") == "attribute"
    assert get_by_path({"a": Pair(1, 2)}, "a.right") == 2
    assert get_by_path({"a": Pair(1, 2)}, "a[0]") == 1


def test_item_wins_over_attribute_at_every_level():
    both = _Dict(note="item")
    assert get_by_path(both, "note") == "item"
    assert get_by_path({"a": both}, "a.note") == "item"


def test_attributes_of_modules_arrays_and_objects_are_read():
    assert get_by_path({"m": jnp}, "m.pi") == jnp.pi
    assert get_by_path({"x": np.zeros((2, 3))}, "x.shape[1]") == 3
    assert get_by_path({"x": jnp.zeros((2, 3))}, "x.T").shape == (3, 2)


def test_subscribing_a_class_is_not_an_item():
    assert get_by_path({"a": list}, "a.int", default="miss") == "miss"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("d[0]", "int"), ("d['0']", "str"), ("d[None]", "none"), ("d[1,2]", "pair"),
     ("d[1.5]", "float")],
)  # fmt: skip
def test_keys_of_all_kinds_are_found(path, expected):
    keys = {0: "int", "0": "str", None: "none", (1, 2): "pair", 1.5: "float"}
    assert get_by_path({"d": keys}, path) == expected


def test_reading_never_creates_entries():
    tree = collections.defaultdict(dict)
    assert get_by_path(tree, "a.b", default=None) is None
    with pytest.raises(KeyError):
        get_by_path(tree, "a")
    assert dict(tree) == {}


# ------------------------------------------------------------------------------------
# Arrays
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("xp", [np, jnp])
def test_slices_give_what_the_python_expression_gives(xp):
    t = xp.arange(2 * 3 * 4).reshape(2, 3, 4)
    tree = {"t": t}
    np.testing.assert_array_equal(get_by_path(tree, "t[..., 1:, ::2]"), t[..., 1:, ::2])
    np.testing.assert_array_equal(get_by_path(tree, "t[0,1].T"), t[0, 1].T)
    np.testing.assert_array_equal(get_by_path(tree, "t[None,...,-1]"), t[None, ..., -1])
    np.testing.assert_array_equal(get_by_path(tree, "t.-1"), t[-1])


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize(
    "path", ["[2]", "[-3]", "[0,3]", "[...,4]", "[None,2]", "[0,...,0,4]", "[0,0,0,0]"]
)
def test_index_out_of_range_of_an_array_is_a_miss(xp, path):
    t = xp.zeros((2, 3, 4))
    assert get_by_path(t, path, default="miss") == "miss"
    with pytest.raises(IndexError, match="has no"):
        get_by_path({"t": t}, f"t{path}")


def test_traced_arrays_are_sliced_and_checked():
    def f(x):
        assert get_by_path({"x": x}, "x[5]", default=None) is None
        return get_by_path({"x": x}, "x[1]")

    assert jax.jit(f)(jnp.arange(3)) == 1


def test_shape_structs_are_sliced_as_shapes():
    tree = {"x": jax.ShapeDtypeStruct((2, 3, 4), jnp.bfloat16)}
    found = get_by_path(tree, "x[0, 1:]")
    assert found == jax.ShapeDtypeStruct((2, 4), jnp.bfloat16)
    assert get_by_path(tree, "x[...,0].T").shape == (3, 2)
    assert get_by_path(tree, "x.shape") == (2, 3, 4)
    assert get_by_path(tree, "x[2]", default="miss") == "miss"
    assert get_by_path(tree, "x.nothing", default="miss") == "miss"


# ------------------------------------------------------------------------------------
# Misses
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["x", "a.x", "a.b[5]", "a.b[0].x", "a.b['x']", "a[0]"])
def test_default_is_returned_for_a_miss_at_any_depth(path):
    assert get_by_path({"a": {"b": [1]}}, path, default="d") == "d"


def test_malformed_path_raises_in_spite_of_a_default():
    with pytest.raises(PathSyntaxError):
        get_by_path({}, "a..b", default=None)


class _Computed:
    @property
    def broken(self):
        raise AttributeError("the user's own mistake")

    @functools.cached_property
    def also_broken(self):
        return self.nothing

    @property
    def wrong_key(self):
        raise KeyError("in the property")


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("broken", AttributeError, "the user's own mistake"),
        ("also_broken", AttributeError, "nothing"),
        ("wrong_key", KeyError, "in the property"),
    ],
)
def test_error_inside_a_property_reaches_the_user(name, error, text):
    with pytest.raises(error, match=text) as caught:
        get_by_path({"a": _Computed()}, f"a.{name}", default=None)
    assert not isinstance(caught.value, PathNotFoundError)


class _BrokenShape:
    x = 1

    @property
    def shape(self):
        raise RuntimeError("must not be asked for")


def test_only_the_attribute_that_is_asked_for_is_computed():
    tree = {"a": _BrokenShape()}
    assert get_by_path(tree, "a.x") == 1
    assert get_by_path(tree, "a.T", default="miss") == "miss"
    assert get_by_path(tree, "a[0]", default="miss") == "miss"
    with pytest.raises(PathNotFoundError, match="has no 'y'"):
        get_by_path(tree, "a.y")
    with pytest.raises(RuntimeError, match="must not be asked for"):
        get_by_path(tree, "a.shape", default=None)


class _Slots:
    __slots__ = ("x",)


def test_slot_without_value_is_a_miss():
    assert get_by_path(_Slots(), "x", default="miss") == "miss"


def test_miss_tells_everything_about_the_place():
    tree = {"batch": {"image": np.zeros((8, 3), np.float32), "label": [1]}}
    with pytest.raises(PathNotFoundError) as caught:
        get_by_path(tree, "batch.imag.x")
    error = caught.value
    assert isinstance(error, KeyError)
    assert error.path == "batch.imag.x"
    assert error.failed_part == "imag"
    assert error.resolved == kontext.Path("batch")
    assert error.available == ["image", "label"]
    assert str(error).splitlines() == [
        "Path 'batch.imag.x' not found: 'batch' (dict) has no 'imag'.",
        "Available: image: float32[8,3], label: list of length 1",
        "Did you mean 'image'?",
    ]


@pytest.mark.parametrize("error_type", [KeyError, IndexError])
def test_index_out_of_range_names_the_length(error_type):
    with pytest.raises(error_type, match=r"'a' \(list of length 2\) has no \[5\]"):
        get_by_path({"a": [1, 2]}, "a[5]")


def test_at_most_twenty_names_are_listed():
    tree = {f"name{i}": i for i in range(100)}
    with pytest.raises(PathNotFoundError) as caught:
        get_by_path(tree, "x")
    assert "name19" in str(caught.value)
    assert "name20" not in str(caught.value)
    assert "(80 more)" in str(caught.value)
    assert len(caught.value.available) == 100


def test_names_of_objects_are_listed_without_computing_properties():
    with pytest.raises(PathNotFoundError, match="Available: broken, wrong_key"):
        get_by_path(_Computed(), "x")
    with pytest.raises(PathNotFoundError, match="Available: cams: int, pose, xyz"):
        get_by_path(Box(cams=1), "x")


def test_not_found_error_survives_pickling():
    with pytest.raises(PathNotFoundError) as caught:
        get_by_path({"a": 1}, "b")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.available == ["a"]
