"""`TreeFlattenWithPath`: nested fields to top-level fields."""

import pytest

from kauldron.data.transforms import TreeFlattenWithPath


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
