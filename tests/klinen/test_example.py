"""The training loop of the page and of the example."""

import pathlib
import runpy

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "klinen_digits.py"

WITH_OPTIMIZATIONS = True


@pytest.fixture(scope="module")
def trained():
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.slow
def test_it_recognises_digits(trained):
    assert trained["accuracy"] > 0.95


def test_the_trained_model_is_an_ordinary_model(trained):
    model, x = trained["model"], trained["x"]
    assert model.training is True
    assert sorted(model.rngs) == ["default", "dropout"]
    assert np.isfinite(model(x[:3])).all()


def test_the_page_shows_this_very_loop():
    code = EXAMPLE.read_text().split('"""\n', 1)[1].strip()
    assert code in (ROOT / "docs" / "klinen.md").read_text()
    class_and_loop = code.split("import klinen as knn")[1]
    assert len([line for line in class_and_loop.splitlines() if line.strip()]) <= 30
