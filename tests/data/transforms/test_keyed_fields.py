"""The `key` argument: which fields are read and written."""

import copy
import dataclasses
import logging
import pickle
import types

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data import transforms as T


class AddOne(T.ElementWiseTransform):
    def map_element(self, element):
        return element + 1


def test_one_key():
    assert AddOne(key="x").map({"x": 1, "y": 5}) == {"x": 2, "y": 5}


def test_several_keys():
    assert AddOne(key=["x", "y"]).map({"x": 1, "y": 5, "z": 0}) == {
        "x": 2,
        "y": 6,
        "z": 0,
    }


def test_mapping_adds_the_result_and_keeps_the_source():
    record = {"x": 1, "y": 5}
    result = AddOne(key={"x": "new", "y": "y"}).map(record)
    assert result == {"x": 1, "new": 2, "y": 6}
    assert record == {"x": 1, "y": 5}


def test_key_is_stored_as_a_mapping():
    assert AddOne(key="x").key == {"x": "x"}
    assert AddOne(key=("x", "y")).key == {"x": "x", "y": "y"}
    assert AddOne(key={"x": "z"}).key == {"x": "z"}


def test_any_mapping_is_a_record_and_is_left_alone():
    frozen = types.MappingProxyType({"x": 1})
    result = AddOne(key="x").map(frozen)
    assert type(result) is dict and result == {"x": 2}
    assert frozen == {"x": 1}


def test_no_key_present_names_wanted_available_and_nearest():
    with pytest.raises(KeyError) as error:
        AddOne(key=["imgae"]).map({"label": 1, "image": 2})
    text = str(error.value)
    assert "AddOne" in text
    assert "['imgae']" in text
    assert "['image', 'label']" in text
    assert "'imgae' -> 'image'" in text


def test_some_keys_missing_is_logged_once_per_object(caplog):
    transform = AddOne(key=["x", "y"])
    with caplog.at_level(logging.WARNING):
        assert transform.map({"x": 1}) == {"x": 2}
        assert transform.map({"x": 1}) == {"x": 2}
        assert len(caplog.records) == 1
        assert "['y']" in caplog.text
        AddOne(key=["x", "y"]).map({"x": 1})
        assert len(caplog.records) == 2


def test_taken_out_key():
    with pytest.raises(KeyError, match="already has a field 'y'"):
        AddOne(key={"x": "y"}).map({"x": 1, "y": 2})


def test_swapping_through_keys_is_refused():
    with pytest.raises(KeyError, match="already has a field"):
        AddOne(key={"x": "y", "y": "x"}).map({"x": 1, "y": 2})


@pytest.mark.parametrize("key", ["", [], (), {}, {"": "x"}, {"x": ""}, ["x", ""]])
def test_empty_key(key):
    with pytest.raises(KeyError):
        AddOne(key=key)


@pytest.mark.parametrize(
    "key", [{"x"}, 3, None, b"x", [1], {"x": 1}, {1: "x"}, [["x"]]]
)
def test_key_of_a_wrong_type(key):
    with pytest.raises(TypeError, match="AddOne"):
        AddOne(key=key)


def test_two_keys_written_to_one_field():
    with pytest.raises(KeyError, match="twice"):
        AddOne(key={"x": "z", "y": "z"})


def test_record_that_is_no_dict():
    with pytest.raises(TypeError, match=r"must be dicts; got int64\[3\]"):
        AddOne(key="x").map(np.arange(3))


def test_forgotten_super_post_init_is_named():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Forgetful(T.ElementWiseTransform):
        def __post_init__(self):
            pass

        def map_element(self, element):
            return element

    with pytest.raises(ValueError, match=r"super\(\).__post_init__\(\)"):
        Forgetful(key="x").map({"x": 1})


def test_error_in_map_element_keeps_type_and_message_and_names_the_field():
    with pytest.raises(TypeError) as error:
        AddOne(key="x").map({"x": {}})
    assert "unsupported operand" in str(error.value)
    assert error.value.__notes__ == ["Field 'x': dict"]


# ----------------------------------------------------------------------------
# Dotted paths
# ----------------------------------------------------------------------------


def test_dotted_path_reaches_into_nested_dicts_without_changing_them():
    record = {"obs": {"image": 1, "t": {"a": 0}}, "y": 0}
    result = AddOne(key="obs.image").map(record)
    assert result == {"obs": {"image": 2, "t": {"a": 0}}, "y": 0}
    assert record == {"obs": {"image": 1, "t": {"a": 0}}, "y": 0}


def test_field_of_exactly_that_name_comes_first():
    record = {"obs.image": 10, "obs": {"image": 1}}
    assert AddOne(key="obs.image").map(record) == {
        "obs.image": 11,
        "obs": {"image": 1},
    }


def test_dotted_path_to_a_new_name():
    record = {"obs": {"image": 1}}
    assert AddOne(key={"obs.image": "image"}).map(record) == {
        "obs": {"image": 1},
        "image": 2,
    }
    assert AddOne(key={"obs.image": "obs.bright"}).map(record) == {
        "obs": {"image": 1, "bright": 2}
    }
    assert AddOne(key={"obs.image": "new.name"}).map(record) == {
        "obs": {"image": 1},
        "new.name": 2,
    }
    assert record == {"obs": {"image": 1}}


def test_taken_out_key_below_a_dotted_path():
    with pytest.raises(KeyError, match=r"already has a field 'obs.b'"):
        AddOne(key={"obs.a": "obs.b"}).map({"obs": {"a": 1, "b": 2}})


@pytest.mark.parametrize("key", ["obs.missing", "y.image", "obs.image.deeper", "a.0.b"])
def test_dotted_path_that_leads_nowhere(key):
    with pytest.raises(KeyError, match="missing keys"):
        AddOne(key=key).map({"obs": {"image": 1}, "y": 0})


def test_names_that_are_no_paths_are_names():
    assert AddOne(key="v1.5/x y").map({"v1.5/x y": 1}) == {"v1.5/x y": 2}


# ----------------------------------------------------------------------------
# Values of transforms
# ----------------------------------------------------------------------------


def test_transforms_are_equal_hashable_and_picklable_by_value():
    makers = [
        lambda: T.Cast(key={"x": "y"}, dtype="float32"),
        lambda: T.ValueRange(key=["x", "y"], vrange=[0, 1]),
        lambda: T.Rearrange(key="x", pattern="a b -> b a", axes_lengths={"a": 2}),
        lambda: T.Gather(key="x", axis=0, indices=[1, 2]),
        lambda: T.Resize(key="x", size=[4, 4]),
        lambda: T.CenterCrop(key="x", shape=[4, None]),
        lambda: T.Elements(keep={"a": 1}.keys(), rename={"b": "c"}),
        lambda: T.AddConstants({"a": np.arange(3), "b": {"c": [1, "x"]}}),
        lambda: T.TreeFlattenWithPath(key="x"),
        lambda: T.OneHot(key="x", num_classes=3),
        lambda: T.ResizeSmall(key="x", smaller_size=3),
        lambda: T.RandomCrop(key="x", shape=(3, None)),
        lambda: T.RandomFlipLeftRight(key="x"),
        lambda: T.InceptionCrop(key="x", resize_size=[3, 3]),
    ]
    for make in makers:
        a, b = make(), make()
        assert a == b and hash(a) == hash(b)
        assert pickle.loads(pickle.dumps(a)) == a
        assert dataclasses.replace(a) == a
    assert len({make() for make in makers}) == len(makers)


def test_transforms_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        T.Cast(key="x", dtype="float32").dtype = "int32"
    with pytest.raises(TypeError):
        T.Cast(key="x", dtype="float32").key["y"] = "z"


# ----------------------------------------------------------------------------
# What fields may hold
# ----------------------------------------------------------------------------

ARRAY_TRANSFORMS = [
    T.Cast(key="x", dtype="float32"),
    T.ValueRange(key="x", vrange=(0, 1)),
    T.Rearrange(key="x", pattern="... -> ... 1"),
    T.Gather(key="x", axis=0, indices=(0,)),
    T.Resize(key="x", size=(2, 2)),
    T.CenterCrop(key="x", shape=(1,)),
    T.OneHot(key="x", num_classes=3),
    T.ResizeSmall(key="x", smaller_size=2),
]
RANDOM_TRANSFORMS = [
    T.RandomCrop(key="x", shape=(1,)),
    T.RandomFlipLeftRight(key="x"),
    T.InceptionCrop(key="x"),
]


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        None,
        {"a": 1},
        object(),
        np.array(["a"]),
        ["a"],
        np.array([{}]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fields_without_numbers_name_transform_key_and_type(value):
    for transform in ARRAY_TRANSFORMS + RANDOM_TRANSFORMS:
        args = (np.random.default_rng(0),) if transform in RANDOM_TRANSFORMS else ()
        with pytest.raises(TypeError) as error:
            transform({"x": value}, *args)
        text = str(error.value)
        assert type(transform).__name__ in text and "'x'" in text and "got" in text


def test_ragged_list_is_named():
    with pytest.raises(ValueError, match="ragged") as error:
        T.Cast(key="x", dtype="float32").map({"x": [[1], [2, 3]]})
    assert error.value.__notes__ == ["Field 'x': list"]


@pytest.mark.parametrize(
    "value", [3, 3.5, True, np.uint8(3), np.float32(3), [1, 2], (1, 2), [[1.5], [2]]]
)
def test_python_numbers_numpy_scalars_and_lists_are_arrays(value):
    for transform in ARRAY_TRANSFORMS[:3]:
        result = transform.map({"x": value})["x"]
        assert isinstance(result, np.ndarray | np.generic)


def test_result_is_of_the_family_of_the_input():
    image = np.ones((4, 4, 1), np.float32)
    transforms = [
        T.Cast(key="x", dtype="float16"),
        T.ValueRange(key="x", vrange=(0, 1)),
        T.Rearrange(key="x", pattern="h w c -> w h c"),
        T.Gather(key="x", axis=0, indices=(0,)),
        T.Resize(key="x", size=(2, 2)),
        T.CenterCrop(key="x", shape=(1, 1, 1)),
    ]
    for transform in transforms:
        assert type(transform.map({"x": image})["x"]) is np.ndarray
        assert isinstance(transform.map({"x": jnp.asarray(image)})["x"], jnp.ndarray)


RECORDS = st.recursive(
    st.integers(0, 3) | st.text(max_size=2) | st.none(),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(["a", "b", "a.b", "a.a.b", "c", "a..b", "a.0"])


@given(record=RECORDS, key=KEYS | st.lists(KEYS) | st.dictionaries(KEYS, KEYS))
def test_any_key_on_any_record_maps_or_says_what_is_wrong(record, key):
    before = copy.deepcopy(record)
    try:
        result = T.Cast(key=key, dtype="float32").map(record)
    except (KeyError, TypeError, ValueError):
        pass
    else:
        assert isinstance(result, dict) and result is not record
    assert record == before


def test_misspelt_dotted_path_proposes_the_nearest():
    with pytest.raises(KeyError, match=r"'obs.cam.imgae' -> 'obs.cam.image'"):
        AddOne(key="obs.cam.imgae").map({"obs": {"cam": {"image": 1}, "t": 0}})
