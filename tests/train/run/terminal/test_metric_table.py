"""Which columns a terminal has room for, and what its rows say."""

import pytest

from kauldron.train.run.terminal.metric_table import Best, MetricTable, make_layout

KEYS = {
    "train": ["losses/total", "losses/xent", "metrics/accuracy", "schedules/lr"],
    "test": ["losses/total", "metrics/accuracy", "metrics/iou/0", "metrics/iou/1"],
}


def _columns(keys, width):
    layout = make_layout(keys, width=width, last_step=100)
    return [(c.collection, c.title) for c in layout.columns], layout.num_hidden


def test_columns_are_short_and_grouped_and_without_entries_of_arrays():
    assert _columns(KEYS, 200) == (
        [
            *(("train", "loss"), ("train", "acc"), ("train", "lr")),
            *(("test", "loss"), ("test", "acc")),
        ],
        0,
    )


def test_long_nested_names_are_told_apart():
    keys = {"train": [f"metrics/grads/layers_1/{end}" for end in ("bias", "kernel")]}
    assert _columns(keys, 80)[0] == [
        ("train", "…layers 1/bias"),
        ("train", "…yers 1/kernel"),
    ]


def test_each_collection_has_a_column_before_any_has_a_second():
    assert _columns(KEYS, 45) == ([("train", "loss"), ("test", "loss")], 3)
    many = {f"eval_{i}": ["losses/total", "metrics/a"] for i in range(30)}
    columns, hidden = _columns(many, 80)
    assert columns == [(f"eval_{i}", "loss") for i in range(len(columns))]
    assert len(columns) == 5 and hidden == 55


@pytest.mark.parametrize("width", [20, 40, 80, 81, 120, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(width):
    table = MetricTable(last_step=10**9)
    long = {f"metrics/a_very_long_name_{'x' * 60}_{i}": 1e-9 * -i for i in range(9)}
    lines = []
    for step in range(3):
        for collection in ("train", "an_evaluator_with_a_long_name", "b"):
            lines += table.add(step, collection, {"losses/total": 1e30, **long}, width)
        lines += table.note_saved(step, width)
    lines += table.finish(width)
    assert len(lines) >= 5
    if width >= 40:
        assert max(line.cell_len for line in lines) <= width


def test_metrics_stand_in_the_order_of_the_config():
    table = MetricTable(order={"train": ["zeta", "nested", "alpha"]})
    names = ["alpha", "nested/b", "other", "zeta"]  # as jax sorts them
    values = {"losses/total": 1.0, **{f"metrics/{name}": 1.0 for name in names}}
    table.add(0, "train", values, 120)
    titles, _ = table.finish(120)
    assert titles.plain.split() == [
        "step",
        "loss",
        "zeta",
        "nested/b",
        "alpha",
        "other",
    ]


def test_row_is_complete_when_another_step_comes():
    table = MetricTable()
    assert table.add(0, "test", {"losses/total": 2.0}, 80) == []
    assert table.note_saved(0, 80) == []
    assert table.add(0, "train", {"losses/total": 3.0}, 80) == []
    *header, row = table.add(5, "train", {"losses/total": 1.0}, 80)
    assert len(header) == 2
    assert row.plain.split() == ["0", "3.000", "2.000", "saved"]
    [row] = table.finish(80)
    assert row.plain.split() == ["5", "1.000"]
    assert table.finish(80) == []


def test_step_that_was_only_saved_has_no_row_that_stays():
    table = MetricTable()
    table.add(0, "train", {"losses/total": 3.0}, 80)
    table.note_saved(5, 80)
    [row] = table.pending(80)
    assert row.plain.split() == ["5", "saved"]
    assert table.add(10, "train", {"losses/total": 1.0}, 80) == []
    [row] = table.finish(80)
    assert row.plain.split() == ["10", "1.000"]


def test_header_comes_again_when_there_is_a_new_column_or_another_width():
    table = MetricTable()
    table.add(0, "train", {"losses/total": 3.0}, 80)
    assert len(table.add(1, "train", {"losses/total": 3.0}, 80)) == 2
    assert len(table.add(2, "train", {"losses/total": 3.0}, 80)) == 1
    assert len(table.add(3, "late", {"losses/total": 3.0}, 80)) == 1
    assert len(table.add(4, "train", {"losses/total": 3.0}, 80)) == 3
    assert len(table.finish(20)) == 3


def _styles(text):
    return {
        text.plain[span.start : span.end].strip(): span.style for span in text.spans
    }


def test_change_for_the_better_is_green_for_the_worse_red():
    table = MetricTable()
    table.add(
        0, "train", {"losses/total": 3.0, "metrics/acc": 0.5, "metrics/x": 1.0}, 80
    )
    table.add(
        1, "train", {"losses/total": 2.0, "metrics/acc": 0.4, "metrics/x": 2.0}, 80
    )
    styles = _styles(table.finish(80)[-1])
    assert styles == {"2.000": "green", "0.400": "red"}
    table.add(2, "train", {"losses/total": float("nan")}, 80)
    assert _styles(table.finish(80)[-1]) == {"nan": "bold red"}


def test_best_row_is_marked_also_after_an_earlier_start():
    best = Best(collection="test", key="metrics/acc", is_lower=False)
    best.add(0.7)
    table = MetricTable(best=best, earlier={"test": {"metrics/acc": "nan"}})
    notes = []
    for step, value in enumerate([0.6, 0.8, float("nan"), 0.8, 0.9]):
        table.add(step, "test", {"metrics/acc": value}, 80)
        notes.append(table.row.notes)
    assert notes == [[], ["best"], [], [], ["best"]]


def test_best_value_is_bold_and_a_single_loss_is_the_total():
    table = MetricTable(best=Best(collection="test", key="losses/xent", is_lower=True))
    for step, value in enumerate([3.0, 2.0]):
        values = {"losses/xent": value, "losses/total": value, "metrics/x": 1.0}
        table.add(step, "test", values, 80)
    assert _styles(table.finish(80)[-1]) == {"2.000": "bold green", "best": "cyan"}
    table.add(2, "test", {"losses/xent": 1.0, "losses/total": 1.5}, 80)
    assert _styles(table.finish(80)[-1]) == {"1.500": "green", "best": "cyan"}
