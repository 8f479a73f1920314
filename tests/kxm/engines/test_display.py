"""The table that a launcher keeps up to date."""

import io
import types

from rich.console import Console

from kauldron.kxm.engines.display import table


def _shown(rows, monkeypatch, *, height, width=70):
    console = Console(width=width, height=height, file=io.StringIO())
    monkeypatch.setattr("rich._console", console)
    console.print(table(types.SimpleNamespace(rows=lambda: rows), "a caption"))
    return console.file.getvalue().splitlines()


def test_of_many_units_those_that_tell_something_fit_the_terminal(monkeypatch):
    states = ["succeeded"] * 5 + ["failed", "running"] + ["pending"] * 20
    rows = [
        (str(i + 1), state, f"train:{state}", "-", "", f"seed={i}")
        for i, state in enumerate(states)
    ]
    lines = _shown(rows, monkeypatch, height=10)
    assert [line.split()[:2] for line in lines[1:-1]] == [
        *(["2", "succeeded"], ["3", "succeeded"], ["4", "succeeded"]),
        *(["5", "succeeded"], ["6", "failed"], ["7", "running"]),
    ]
    assert lines[-1].strip() == "a caption"


def test_values_take_one_line_and_a_sweep_as_many_as_it_needs(monkeypatch):
    values = "  ".join(f"test/metric{i}=0.123" for i in range(3))
    row = ("1", "running", "train:running", "10", values, "seed=0, width=64, depth=2")
    lines = _shown([row], monkeypatch, height=20)
    assert sum("test/metric" in line for line in lines) == 1
    assert "".join("".join(lines).split()).count("depth=2") == 1
