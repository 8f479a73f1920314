"""Every benchmark still runs and prints its figures."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = sorted(ROOT.glob("benchmarks/*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_benchmark_prints_json_figures(script, tmp_path):
    result = subprocess.run(
        [sys.executable, str(script), "--tiny"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    figures = [json.loads(line) for line in lines]
    assert figures and all({"name", "ours"} <= set(figure) for figure in figures)
