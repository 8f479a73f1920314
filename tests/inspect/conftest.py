"""One small experiment for all tests, and a switch that hides libraries."""

import sys

import pytest

from kauldron import kd
from tests.train.toy import make_trainer


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """Has a loss and a summary of the same name."""
    return make_trainer(
        tmp_path_factory.mktemp("inspect"),
        train_summaries={"l2": kd.summaries.HistogramSummary(tensor="preds.y")},
    )


@pytest.fixture
def without(monkeypatch):
    """Makes `import name` fail, as if the library was not installed."""

    def hide(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide
