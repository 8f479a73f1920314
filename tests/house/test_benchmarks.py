"""Every benchmark still runs and prints its figures."""

import json
import pathlib

import pytest

from tests import processes

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted(set(ROOT.glob("benchmarks/*.py")) - {ROOT / "benchmarks/figures.py"})


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_benchmark_prints_json_figures(script, fast_python):
    exit_code, output = processes.python(script, "--tiny").wait()
    assert exit_code == 0, output
    lines = [line for line in output.splitlines() if line.startswith("{")]
    figures = [json.loads(line) for line in lines]
    assert figures and all({"name", "ours"} <= set(figure) for figure in figures)
