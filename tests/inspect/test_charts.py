"""The graph of keys, charts of schedules, the page of an experiment."""

import json
import sys
import types

import optax
import pytest

from kauldron import kd, status
from kauldron.inspect.views import rows_of
from tests import processes
from tests.train.toy import make_trainer

WITH_OPTIMIZATIONS = False


@pytest.fixture(params=["graphviz", "no graphviz"])
def graph(request, trainer, without):
    """The graph, from the library and from our own class."""
    if request.param == "graphviz":
        pytest.importorskip("graphviz", reason='pip install "kauldron[inspect]"')
    else:
        without("graphviz")
    return kd.inspect.get_connection_graph(trainer)


def test_equal_names_in_two_groups_are_two_nodes(graph):
    assert '"losses/l2" [' in graph.source
    assert '"summaries/l2" [' in graph.source


def test_keys_join_the_parts(graph):
    edges = [line for line in graph.source.split("\n") if "->" in line]
    labels = {line.strip() for line in graph.source.split("\n") if "[label=" in line}
    (preds,) = [line.split('"')[1] for line in labels if 'label="preds.y"' in line]
    into = [line for line in edges if f'"{preds}" ->' in line]
    assert any('"losses/l2"' in line for line in into)
    assert any('"summaries/l2"' in line for line in into)
    assert any(f'-> "{preds}"' in line and "model" in line for line in edges)


def test_graph_is_saved(graph, tmp_path):
    graph.save(str(tmp_path / "keys.dot"))
    assert (tmp_path / "keys.dot").read_text().startswith("digraph keys {")


def test_keys_with_colons_and_quotes_are_drawn(without):
    without("graphviz")
    losses = {"l2": kd.losses.L2(preds='preds["a b"][:, 0]', targets="batch.y")}
    graph = kd.inspect.get_connection_graph(make_trainer("unused", train_losses=losses))
    assert r"[label=\"preds" not in graph.source
    assert '"key/1" -> "losses/l2"' in graph.source


#
# Schedules
#


def python_only(step):
    return 1.0 if step > 10 else 0.0


def test_schedules_without_altair_are_a_table(without):
    without("altair")
    schedules = {"lr": optax.linear_schedule(0.0, 1.0, 100), "a": {"b": python_only}}
    _, rows = rows_of(kd.inspect.plot_schedules(schedules, num_steps=100))
    assert len(rows) == 2 * 1000
    values = {(row["schedule"], row["step"]): row["value"] for row in rows}
    assert values["lr", 50] == pytest.approx(0.5)
    assert values["lr", 100] == 1
    assert (values["a/b", 10], values["a/b", 11]) == (0, 1)


def test_constant_schedules_and_unknown_lengths(without):
    without("altair")
    _, rows = rows_of(kd.inspect.plot_schedules(optax.constant_schedule(3.0), None))
    assert {row["value"] for row in rows} == {3.0}
    assert rows[-1]["step"] == 1000


def test_schedule_is_evaluated_in_one_call(without):
    without("altair")
    calls = []

    def schedule(step):
        calls.append(step)
        return step * 2.0

    _, rows = rows_of(kd.inspect.plot_schedules({"x": schedule}, 10))
    assert len(calls) == 1
    assert rows[-1]["value"] == 20


def test_error_of_a_schedule_is_its_own(without):
    without("altair")

    def broken(step):
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError, match="no"):
        kd.inspect.plot_schedules({"x": broken}, 10)


def test_chart_has_all_points():
    pytest.importorskip("altair", reason='pip install "kauldron[inspect]"')
    schedules = {str(n): optax.constant_schedule(n) for n in range(6)}
    chart = json.loads(kd.inspect.plot_schedules(schedules, 100).to_json())
    (values,) = chart["datasets"].values()
    assert len(values) == 6 * 1000


#
# Everything
#


def test_page_has_a_section_for_each_part(trainer, tmp_path):
    view = kd.inspect.show_trainer_info(trainer)
    for title in ("Config", "Data", "Model", "Sharding", "Context", "Keys"):
        assert f"\n{title}\n{'-' * len(title)}\n" in f"\n{view}"
        assert f"<summary><b>{title}</b></summary>" in view.html
    assert "This cannot be shown" not in str(view)
    assert view.save(tmp_path / "page.html").exists()


def test_sections_can_be_left_out(trainer):
    view = kd.inspect.show_trainer_info(
        trainer, print_cfg=False, inspect_dataset=False, inspect_connected=False
    )
    assert str(view).startswith("Model\n")
    assert "Keys" not in str(view)


def test_part_that_fails_says_so_and_the_others_are_shown():
    view = kd.inspect.show_trainer_info(kd.train.Trainer(model=None))
    assert "`trainer.model` is not set" in str(view)
    assert "Config\n------\nTrainer(" in str(view)


def test_importing_needs_no_plotting_library():
    program = (
        "import sys; from kauldron import kd; kd.inspect.show_trainer_info; "
        "names = ['pandas', 'altair', 'graphviz', 'matplotlib', 'IPython', 'PIL']; "
        "print([name for name in names if name in sys.modules])"
    )
    assert processes.run_script_with_jax(program).strip() == "[]"


def test_notebooks_display_and_return_nothing(trainer, monkeypatch):
    shown = []
    display = types.ModuleType("IPython.display")
    display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(status, "on_notebook", True, raising=False)
    assert kd.inspect.plot_context(trainer) is None
    assert "f32[16 4]" in shown[0]._repr_html_()
