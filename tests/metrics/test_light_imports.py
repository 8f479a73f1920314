"""Measuring needs no trainer and none of the heavy libraries."""

import importlib
import subprocess
import sys

import pytest

from kauldron import losses, metrics

HEAVY = (
    "tensorflow",
    "sklearn",
    "matplotlib",
    "mediapy",
    "pandas",
    "PIL",
    "torch",
    "kauldron.train",
    "kauldron.data",
)


def test_imports_load_no_heavy_library():
    code = (
        "import sys; from kauldron import metrics, losses, summaries;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module, names",
    [
        (
            "metrics.base",
            "Metric NoopMetric SkipIfMissing TreeMap TreeReduce TreeState",
        ),
        ("metrics.base_state", "State EmptyState AverageState EMPTY"),
        ("metrics.base_state", "CollectingState CollectFirstState"),
        ("metrics.auto_state", "AutoState sum_field min_field max_field concat_field"),
        ("metrics.auto_state", "truncate_field state_field static_field"),
        ("metrics.stats", "Norm Std SingleDimension"),
        ("metrics.classification", "Accuracy BinaryAccuracy Precision1 RocAuc"),
        ("metrics.image", "Psnr Ssim"),
        ("metrics.clustering", "Ari"),
        ("metrics.lpips", "LpipsVgg"),
        ("losses.base", "Loss AllReduceMean compute_losses"),
        ("losses.simple", "L1 L2 SoftmaxCrossEntropy"),
        ("summaries.images", "ShowImages ShowBoxes ShowSegmentations"),
        ("summaries.images", "ShowDifferenceImages"),
        ("summaries.histograms", "Histogram HistogramSummary"),
        ("summaries.pointclouds", "PointCloud ShowPointCloud"),
        ("summaries.texts", "ShowTexts"),
    ],
)
def test_module_paths_that_code_refers_to(module, names):
    imported = importlib.import_module(f"kauldron.{module}")
    assert [name for name in names.split() if not hasattr(imported, name)] == []


def test_older_module_paths_give_the_same_objects():
    assert metrics.base.Metric is metrics.Metric
    assert metrics.base_state.State is metrics.State
    assert losses.base.Loss is losses.Loss
