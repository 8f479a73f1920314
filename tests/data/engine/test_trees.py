import collections

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data.engine import trees
from kauldron.data.engine.trees import RecordMismatchError, stack, unstack

Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([1, 2], "int64"),
        ([1.5, 2.0], "float64"),
        ([True, False], "bool"),
        ([1, 2.5], "float64"),
        ([np.uint8(3), np.uint8(4)], "uint8"),
        (["a", "bcd"], "<U3"),
        ([b"a", b"bcd"], "S3"),
    ],
)
def test_scalars_become_arrays(values, dtype):
    column = stack([{"x": value} for value in values])["x"]
    assert column.dtype == np.dtype(dtype)
    assert column.tolist() == values


@pytest.mark.parametrize("values", [[b"a\0", b"b"], ["a\0", "b"]])
def test_texts_that_end_in_zero_stay_whole(values):
    column = stack(values)
    assert column.dtype == object
    assert column.tolist() == values


def test_structure_is_kept_and_so_is_the_order_of_keys():
    records = [{"b": Point(i, [i, (i, None)]), "a": {"c": i}} for i in range(3)]
    columns = stack(records)
    assert list(columns) == ["b", "a"]
    assert isinstance(columns["b"], Point)
    assert columns["b"].y[1][0].tolist() == [0, 1, 2]
    assert columns["b"].y[1][1] is None


def test_jax_arrays_become_numpy_arrays():
    column = stack([jnp.ones(2), jnp.zeros(2)])
    assert type(column) is np.ndarray
    assert column.shape == (2, 2)


def test_objects_of_unknown_kind_become_an_object_array():
    values = [object(), object()]
    column = stack([{"x": v} for v in values])["x"]
    assert column.dtype == object
    assert column.tolist() == values


@pytest.mark.parametrize(
    "first, second, words",
    [
        ({"x": np.zeros(2)}, {"x": np.zeros(3)}, ["'x'", "(2,)", "(3,)"]),
        ({"x": 1}, {"y": 1}, ["'x'", "'y'", "AddConstants"]),
        ({"x": 1}, {"x": 1, "y": 1}, ["extra: ['y']"]),
        ({"x": 1}, {"x": None}, ["'x'", "NoneType"]),
        ({"x": None}, {"x": 1}, ["'x'", "NoneType"]),
        ({"x": [1]}, {"x": [1, 2]}, ["'x'", "1 items", "2"]),
        ({"x": [1]}, {"x": (1,)}, ["'x'"]),
        ({"x": 1}, {"x": "a"}, ["'x'", "int64", "<U1"]),
        ({"x": 1}, [1], ["the record itself"]),
        ({"a": {"b": np.zeros(2)}}, {"a": {"b": np.zeros(3)}}, ["'a.b'"]),
    ],
)
def test_what_differs_is_named(first, second, words):
    with pytest.raises(RecordMismatchError) as info:
        stack([first, first, second])
    assert info.value.rows == (0, 2)
    message = info.value.described("record 4 of A", "record 9 of B")
    for word in [*words, "record 4 of A", "record 9 of B"]:
        assert word in message


@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    size=st.integers(1, 5),
    dtype=st.sampled_from(["uint8", "float32", "bool", "<U3", "complex64"]),
)
def test_unstacking_undoes_stacking(shape, size, dtype):
    rng = np.random.default_rng(0)
    records = [
        {"a": rng.integers(0, 2, shape).astype(dtype), "n": [i]} for i in range(size)
    ]
    again = unstack(stack(records), size)
    for record, other in zip(records, again):
        np.testing.assert_array_equal(record["a"], other["a"])
        assert record["n"] == other["n"]


def test_filler_is_zero_false_or_empty():
    columns = {
        "f": np.ones((2, 3)),
        "b": np.ones(2, bool),
        "s": np.array(["a", "b"]),
        "o": np.array([b"x\0", b"y"], object),
    }
    padded = trees.pad_rows(columns, 4)
    assert padded["f"][2:].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert padded["b"].tolist() == [True, True, False, False]
    assert padded["s"].tolist() == ["a", "b", "", ""]
    assert padded["o"].tolist()[2:] == [b"", b""]


def test_copies_of_records_share_nothing():
    record = {"a": np.zeros(2), "b": {"c": [np.zeros(1)]}, "s": "x"}
    copy = trees.copy_record(record)
    copy["a"][0] = copy["b"]["c"][0][0] = 1
    copy["b"]["c"].append(2)
    assert record["a"][0] == 0 and record["b"]["c"] == [np.zeros(1)]
