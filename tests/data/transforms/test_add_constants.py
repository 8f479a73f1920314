"""`AddConstants`: fields that are the same for every record."""

import numpy as np
import pytest

from kauldron.data.transforms import AddConstants, batch_form


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
