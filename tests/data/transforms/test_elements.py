"""`Elements`: keep, drop, rename, copy."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.data.transforms import Elements

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


def test_record_that_is_no_dict():
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
