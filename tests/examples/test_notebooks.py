"""The notebooks run from top to bottom, and show what they promise."""

import os
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.glob("examples/notebooks/*.ipynb"))


@pytest.fixture
def environment(monkeypatch, tmp_path, fast_python):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    os.makedirs(tmp_path / "jupyter")


def _outputs(cell):
    """Everything that a cell shows, as text."""
    texts = []
    for output in cell.outputs:
        texts.append(output.get("text", ""))
        texts += [str(data) for data in output.get("data", {}).values()]
    return "\n".join(texts)


@pytest.mark.slow
def test_quickstart_runs_and_shows_each_step(tmp_path, environment):
    notebook = nbformat.read(ROOT / "examples/notebooks/quickstart.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = {cell.id: _outputs(cell) for cell in notebook.cells if "outputs" in cell}
    assert shown["check"].strip() == "[]" and shown["problems"].strip() == "[]"
    assert "num_train_steps=200" in shown["resolve"]
    assert "logits" in shown["context"]
    assert "TrainState" in shown["train"] and "4_810 numbers" in shown["train"]
    for name in ("train", "change"):  # the panel, as in a terminal
        assert "best, saved" in shown[name] and "true \\ pred" in shown[name]
        assert "steps/s" not in shown[name], "the live line is gone"
    assert not any("ipywidgets" in text for text in shown.values())
    assert "accuracy" in shown["restore"]
    assert "297 -> 1597" in shown["change"]
    assert "fewer" in shown["compare"] and "test/accuracy:best" in shown["runs"]
    charts = ("schedules", "plot", "compare-plot")
    assert all("vega" in shown[name] for name in charts)
    assert len(shown["resolve"]) < 30_000 and len(shown["train"]) < 30_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
