"""Older module paths, as configs and pickles of earlier versions name them."""

import importlib

import pytest

from kauldron import kd

MEMBERS = {
    "ckpts.best_n": "keep_best_n",
    "ckpts.exp_step": "ExpStep",
    "data.arithmetic": "AddBias",
    "data.array_record": "LazyArrayRecordDataSource",
    "data.extra_image_ops": "RandAugment",
    "data.frame_sampling": "RandomClip",
    "data.image_predicates": "FlipUpsideDown",
    "data.lazy_array_record": "LazyArrayRecordDataSource",
    "data.padding": "PadImage",
    "data.patch_normalization": "VideoMAENormalization",
    "data.pose_preprocessing": "RelativePoses",
    "data.preprocessing": "ApplyW",
    "data.random_images": "RandomFlipLeftRightVideo",
    "data.scenic_ops": "ThreeSpatialCrop",
    "data.spatial_crops": "ThreeSpatialCrop",
    "data.stacks": "HStack",
    "data.temporal_windows": "TemporalRandomWindow",
    "data.video_axes": "Repeat",
    "evals.stop_schedules": "default_stop_after_steps_schedule_fn",
    "metrics.average_precision": "MultilabelAveragePrecision",
    "metrics.depth": "MeanAbsoluteRelativeError",
    "metrics.joint_accuracy": "JointAccuracy",
    "metrics.psnr_with_resize": "PsnrWithResize",
    "summaries.confusion_matrix": "ConfusionMatrix",
    "summaries.image_grid": "ImageGrid",
    "summaries.printed_values": "Print",
    "summaries.videos": "ShowVideosAsGif",
    "train.gif_video_writer": "GifVideoWriter",
    "train.loss_optimizers": "multi_optimizer",
    "train.mlflow_metric_writer": "MLFlowMetricWriter",
    "train.multi_train_step": "MultiTrainStep",
    "train.noop_train_step": "NoopTrainStep",
    "train.npz_writer": "NpzWriter",
    "train.wandb_writer": "WandbWriter",
}


@pytest.mark.parametrize("path", MEMBERS)
def test_older_path_of_a_module_has_its_names(path):
    older = importlib.import_module(f"kauldron.contrib.{path}")
    public = getattr(kd.contrib, path.split(".")[0])
    assert getattr(older, MEMBERS[path]) is getattr(public, MEMBERS[path])
