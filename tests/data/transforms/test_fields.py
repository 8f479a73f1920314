"""Which fields a transform reads and writes: `key=`, element-wise transforms, `Elements`."""

from __future__ import annotations

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
from kauldron.data.transforms import Elements


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


RECORD = {"a": 1, "b": 2, "c": 3}


def test_without_arguments_records_pass():
    assert Elements().map(RECORD) == RECORD
    assert Elements().map(RECORD) is not RECORD


def test_keep():
    assert Elements(keep=["c", "a"]).map(RECORD) == {"a": 1, "c": 3}


def test_drop():
    assert Elements(drop=["a"]).map(RECORD) == {"b": 2, "c": 3}


def test_bare_string_is_one_key():
    record = {"image": 1, "i": 2}
    assert Elements(keep="image").map(record) == {"image": 1}
    assert Elements(drop="image").map(record) == {"i": 2}


def test_rename():
    assert Elements(rename={"a": "x"}).map(RECORD) == {"b": 2, "c": 3, "x": 1}


def test_keep_with_rename_and_copy_has_nothing_else():
    transform = Elements(keep=["a"], rename={"b": "x"}, copy={"c": "y"})
    assert transform.map(RECORD) == {"a": 1, "y": 3, "x": 2}


def test_drop_with_rename_and_copy():
    transform = Elements(drop=["a"], rename={"b": "x"}, copy={"a": "y"})
    assert transform.map(RECORD) == {"c": 3, "y": 1, "x": 2}


def test_copy_source_may_be_renamed_too():
    transform = Elements(rename={"a": "x"}, copy={"a": "y"})
    assert transform.map(RECORD) == {"b": 2, "c": 3, "y": 1, "x": 1}


def test_order_is_fields_then_copies_then_renamed():
    transform = Elements(rename={"a": "z"}, copy={"b": "y"})
    assert list(transform.map(RECORD)) == ["b", "c", "y", "z"]


def test_swap():
    assert Elements(rename={"a": "b", "b": "a"}).map(RECORD) == {"a": 2, "b": 1, "c": 3}


def test_rename_onto_a_dropped_field():
    assert Elements(drop=["a"], rename={"b": "a"}).map(RECORD) == {"a": 2, "c": 3}


def test_rename_onto_a_field_that_is_not_kept():
    assert Elements(keep=["c"], rename={"a": "b"}).map(RECORD) == {"b": 1, "c": 3}


def test_record_is_not_changed():
    record = types.MappingProxyType(dict(RECORD))
    Elements(drop=["a"], rename={"b": "x"}, copy={"c": "y"}).map(record)
    assert record == RECORD


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"keep": ["a"], "drop": ["b"]}),
        (KeyError, {"keep": ["a"], "rename": {"a": "x"}}),
        (KeyError, {"keep": ["a"], "rename": {"x": "a"}}),
        (KeyError, {"drop": ["a"], "rename": {"a": "x"}}),
        (KeyError, {"keep": ["a"], "copy": {"x": "a"}}),
        (KeyError, {"drop": ["a"], "copy": {"x": "a"}}),
        (KeyError, {"rename": {"a": "b"}, "copy": {"x": "a"}}),
        (KeyError, {"rename": {"b": "a"}, "copy": {"x": "a"}}),
        (ValueError, {"copy": {"a": "x", "b": "x"}}),
        (ValueError, {"rename": {"a": "x", "b": "x"}}),
        (TypeError, {"keep": 3}),
        (TypeError, {"keep": [3]}),
        (TypeError, {"drop": [b"a"]}),
        (TypeError, {"rename": ["a"]}),
        (TypeError, {"rename": {"a": 1}}),
        (TypeError, {"copy": "a"}),
    ],
)
def test_conflicts_are_found_at_construction(error, arguments):
    with pytest.raises(error, match="Elements"):
        Elements(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"keep": ["imgae"]},
        {"drop": ["imgae"]},
        {"rename": {"imgae": "x"}},
        {"copy": {"imgae": "x"}},
    ],
)
def test_missing_field_names_what_there_is(arguments):
    with pytest.raises(KeyError) as error:
        Elements(**arguments).map({"label": 1, "image": 2})
    text = str(error.value)
    assert "Elements: missing keys ['imgae']" in text
    assert "Available keys: ['image', 'label']" in text
    assert "'imgae' -> 'image'" in text


def test_copy_onto_an_existing_field():
    with pytest.raises(KeyError, match=r"drop=\['b'\]"):
        Elements(copy={"a": "b"}).map(RECORD)


def test_rename_onto_a_surviving_field():
    with pytest.raises(KeyError, match=r"drop=\['b'\]"):
        Elements(rename={"a": "b"}).map(RECORD)


def test_elements_of_a_record_that_is_no_dict():
    with pytest.raises(TypeError, match="must be dicts; got tuple"):
        Elements(keep="a").map((1, 2))


NAMES = st.sampled_from(["a", "b", "c", "d", "x"])


@given(
    keep=st.lists(NAMES, max_size=2),
    drop=st.lists(NAMES, max_size=2),
    rename=st.dictionaries(NAMES, NAMES, max_size=2),
    copy=st.dictionaries(NAMES, NAMES, max_size=2),
)
def test_any_arguments_give_a_record_without_loss_or_a_key_error(
    keep, drop, rename, copy
):
    record = dict(RECORD)
    try:
        transform = Elements(keep=keep, drop=drop, rename=rename, copy=copy)
        result = transform.map(record)
    except (KeyError, ValueError):
        return
    finally:
        assert record == RECORD
    for old, new in (*rename.items(), *copy.items()):
        assert result[new] == RECORD[old]
    if keep:
        expected = {*keep, *rename.values(), *copy.values()}
    else:
        survivors = set(RECORD) - set(drop) - set(rename)
        expected = {*survivors, *rename.values(), *copy.values()}
    assert set(result) == expected
