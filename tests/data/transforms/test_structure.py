"""Constant fields, and nested fields that become top-level ones."""

from __future__ import annotations

import numpy as np
import pytest

from kauldron.data.transforms import AddConstants, TreeFlattenWithPath, batch_form


def test_fields_are_added_to_a_new_record():
    record = {"x": 1}
    assert AddConstants({"y": 2, "z": "t"}).map(record) == {"x": 1, "y": 2, "z": "t"}
    assert record == {"x": 1}


def test_same_record_twice():
    record = {"x": 1}
    transform = AddConstants(values={"y": 2})
    assert transform.map(record) == transform.map(record)


def test_existing_field():
    with pytest.raises(KeyError, match=r"already has the fields \['x'\]"):
        AddConstants({"x": 2}).map({"x": 1})
    with pytest.raises(KeyError, match=r"already has the fields \['x'\]"):
        AddConstants({"x": 2}).map_batch({"x": np.arange(3)})


def test_no_values_is_identity():
    assert AddConstants().map({"x": 1}) == {"x": 1}


@pytest.mark.parametrize("values", [3, "x", ["x"], None])
def test_values_must_be_a_mapping(values):
    with pytest.raises(TypeError, match="mapping"):
        AddConstants(values)


def test_record_that_is_no_dict():
    with pytest.raises(TypeError, match="must be dicts"):
        AddConstants({"x": 1}).map([1])


def test_nobody_can_change_the_constant():
    array, nested = np.zeros(3), {"a": [1, 2]}
    transform = AddConstants({"array": array, "nested": nested})
    array[0] = 5
    nested["a"].append(3)
    result = transform.map({})
    np.testing.assert_array_equal(result["array"], np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        result["array"][0] = 1
    result["nested"]["a"].append(9)
    assert transform.map({})["nested"] == {"a": [1, 2]}


def test_columns_are_fresh_copies():
    columns = AddConstants({"a": np.zeros(2)}).map_batch({"x": np.arange(3)})
    columns["a"][0] = 1
    assert columns["a"].tolist() == [[1, 1], [0, 0], [0, 0]]


def test_batch_without_arrays_has_no_length():
    with pytest.raises(ValueError, match="no length"):
        batch_form(AddConstants({"a": 1}))({})


def test_equality_is_by_value_and_type():
    assert AddConstants({"a": np.arange(2)}) != AddConstants({"a": np.arange(3)})
    assert AddConstants({"a": 1}) != AddConstants({"a": 1.0})
    assert AddConstants({"a": 1}) != AddConstants({"a": True})
    assert AddConstants({"a": 1, "b": 2}) == AddConstants({"b": 2, "a": 1})
    assert AddConstants({"a": 1}) != {"a": 1}


def test_order_of_columns_and_records_is_the_same():
    transform = AddConstants({"z": 1, "a": 2})
    assert list(transform.map({"m": 0})) == ["m", "z", "a"]
    assert list(transform.map_batch({"m": np.arange(2)})) == ["m", "z", "a"]


def test_nested_field_becomes_several():
    record = {"a": {"b": 1, "c": [5, (6, 7)]}, "d": 2}
    assert TreeFlattenWithPath(key="a").map(record) == {
        "a_b": 1,
        "a_c_0": 5,
        "a_c_1_0": 6,
        "a_c_1_1": 7,
        "d": 2,
    }
    assert record == {"a": {"b": 1, "c": [5, (6, 7)]}, "d": 2}


def test_separator():
    flat = TreeFlattenWithPath(key="a", separator="/").map({"a": {"b": {"c": 1}}})
    assert flat == {"a/b/c": 1}


def test_prefix_is_the_out_key_and_the_source_stays():
    flat = TreeFlattenWithPath(key={"a": "z"}).map({"a": {"b": 1}})
    assert flat == {"a": {"b": 1}, "z_b": 1}


def test_leaf_stays_as_it_is():
    assert TreeFlattenWithPath(key=["a", "d"]).map({"a": {"b": 1}, "d": 2}) == {
        "a_b": 1,
        "d": 2,
    }


def test_none_is_a_leaf_and_empty_containers_vanish():
    flat = TreeFlattenWithPath(key="a").map(
        {"a": {"b": None, "c": {}, "d": []}, "e": 1}
    )
    assert flat == {"a_b": None, "e": 1}


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"a": {"b": 1}, "a_b": 2}, "a_b"),
        ({"a_b": 2, "a": {"b": 1}}, "a_b"),
        ({"a": {"b": {"c": 1}, "b_c": 2}}, "a_b_c"),
    ],
)
def test_collision(record, name):
    with pytest.raises(KeyError, match=rf"\['{name}'\], which the record already has"):
        TreeFlattenWithPath(key="a").map(record)


def test_collision_of_two_fields_of_one_transform():
    record = {"a": {"b_c": 1}, "a_b": {"c": 2}}
    with pytest.raises(KeyError, match=r"\['a_b_c'\]"):
        TreeFlattenWithPath(key=["a", "a_b"]).map(record)


def test_dotted_path_is_flattened_beside_its_source():
    record = {"obs": {"state": {"x": 1, "y": 2}}}
    assert TreeFlattenWithPath(key={"obs.state": "state"}).map(record) == {
        "obs": {"state": {"x": 1, "y": 2}},
        "state_x": 1,
        "state_y": 2,
    }


def test_missing_key():
    with pytest.raises(KeyError, match="missing keys"):
        TreeFlattenWithPath(key="b").map({"a": {}})
