"""Tables, with and without pandas."""

import copy
import pickle

import pytest

from kauldron.inspect.views import Table, format_table, make_table, rows_of

ROWS = [{"Name": "a", "Size": 1.0}, {"Name": "two\nlines", "Size": 22}]
COLUMNS = ("Name", "Size")


def test_table_is_a_data_frame_where_pandas_is_installed():
    pandas = pytest.importorskip("pandas", reason='pip install "kauldron[inspect]"')
    table = make_table(COLUMNS, ROWS)
    assert isinstance(table, pandas.DataFrame)
    assert rows_of(table) == (["Name", "Size"], ROWS)


def test_table_is_plain_without_pandas(without):
    without("pandas")
    table = make_table(COLUMNS, ROWS)
    assert isinstance(table, Table)
    assert rows_of(table) == (["Name", "Size"], ROWS)
    assert list(table) == ["Name", "Size"]
    assert table["Size"] == [1.0, 22]
    assert len(table) == 2
    assert table.data is table


def test_empty_table_keeps_its_columns(without):
    without("pandas")
    assert repr(make_table(COLUMNS, [])) == "Name  Size"


def test_text_is_aligned_and_keeps_lines():
    assert format_table(COLUMNS, ROWS).split("\n") == [
        "Name   Size",
        "a      1",
        "two    22",
        "lines",
    ]


def test_html_is_escaped():
    html = Table(["x"], [{"x": "<b>"}])._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_long_tables_are_printed_in_part():
    table = Table(["n"], [{"n": n} for n in range(500)])
    assert len(repr(table).split("\n")) < 100
    assert repr(table).endswith("500 rows")


def test_unknown_column_lists_the_columns():
    with pytest.raises(KeyError, match="Name, Size"):
        Table(COLUMNS, ROWS)["Sise"]


@pytest.mark.parametrize(
    "use", [lambda t: t.groupby("Name"), lambda t: t.to_dict("list")]
)
def test_what_only_pandas_can_do_names_the_extra(use):
    with pytest.raises(AttributeError, match=r"kauldron\[inspect\]"):
        use(Table(COLUMNS, ROWS))


def test_table_can_be_copied_and_pickled():
    table = Table(COLUMNS, ROWS)
    assert pickle.loads(pickle.dumps(table)).to_dict() == ROWS
    assert copy.deepcopy(table).to_dict() == ROWS
