"""Measuring needs no trainer and none of the heavy libraries."""

import importlib

import pytest

from kauldron import losses, metrics
from tests import processes

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
    assert processes.run_script_with_jax(code).splitlines()[-1] == "[]"


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


@pytest.mark.parametrize(
    "path",
    [
        "metrics.average_state.AverageState",
        "metrics.norm.Norm",
        "metrics.roc_auc.RocAuc",
        "metrics.skip_if_missing.SkipIfMissing",
        "metrics.tree_metrics.TreeMap",
        "losses.loss.Loss",
        "losses.all_reduce_mean.AllReduceMean",
        "summaries.boxes.ShowBoxes",
        "nn.dropout.Dropout",
        "nn.sequential.Sequential",
        "nn.flat_autoencoder.FlatAutoencoder",
        "optim.parameter_average.EmaParamsState",
        "sharding.fsdp.FSDPSharding",
    ],
)
def test_paths_of_classes_in_pickles_of_before(path):
    module, name = f"kauldron.{path}".rsplit(".", 1)
    public = importlib.import_module(module.rsplit(".", 1)[0])
    assert getattr(importlib.import_module(module), name) is getattr(public, name)
