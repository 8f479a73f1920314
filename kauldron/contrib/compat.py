"""Older module paths, which pickles, saved configs and other code may name."""

from typing import Any, NoReturn

from kauldron.lazy_namespace import older_modules


class TfGrainIterator:
    """Raise an error: `grain.tensorflow`, which it iterated over, was removed."""

    def __init__(self, *, source: Any, iter: Any) -> NoReturn:
        del source, iter
        raise ImportError(
            "TfGrainIterator: `grain.tensorflow` was removed from grain. Iterate over a "
            "pipeline of `kd.data.tf` or `kd.data.py`: `iter(ds)` can be saved."
        )


older_modules(
    "kauldron.contrib",
    {
        "checkpoints": "ckpts",
        "ckpts.best_n": "ckpts.policies",
        "ckpts.exp_step": "ckpts.policies",
        "data.arithmetic": "data.values",
        "data.array_record": "data.sources",
        "data.extra_image_ops": "data.rand_augment",
        "data.frame_sampling": "data.clips",
        "data.image_predicates": "data.predicates",
        "data.iterators": "kauldron.data.iters compat",
        "data.iters": "kauldron.data.iters compat",
        "data.lazy_array_record": "data.sources",
        "data.padding": "data.images",
        "data.patch_normalization": "data.values",
        "data.pose_preprocessing": "data.poses",
        "data.preprocessing": "data",
        "data.py.preprocessing": "data.py",
        "data.random_images": "data.images",
        "data.scenic_ops": "data.images",
        "data.spatial_crops": "data.images",
        "data.stacks": "data.axes",
        "data.temporal_windows": "data.clips",
        "data.video_axes": "data.axes",
        "knnx": "nn.knnx",
        "modules": "nn",
        "modules.from_xid": "nn.from_xid",
        "modules.knnx": "nn.knnx",
        "modules.knnx_examples": "nn.knnx_examples",
        "modules.nnx_wrapper": "nn.nnx_wrapper",
        "modules.readout": "nn.readout",
        "evals.stop_schedules": "evals.train_evaluator",
        "evals.train_eval": "evals.train_evaluator",
        "metrics.average_precision": "metrics.classification",
        "metrics.depth": "metrics.regression",
        "metrics.joint_accuracy": "metrics.classification",
        "metrics.psnr_with_resize": "metrics.regression",
        "summaries.image_grid": "summaries.images",
        "summaries.printed_values": "summaries.texts",
        "summaries.values": "summaries.confusion_matrix summaries.texts",
        "summaries.videos": "summaries.images",
        "train.gif_video_writer": "train.file_writers",
        "train.loss_optimizers": "train.steps",
        "train.mlflow_metric_writer": "train.tracking_writers",
        "train.multi_train_step": "train.steps",
        "train.noop_train_step": "train.steps",
        "train.npz_writer": "train.file_writers",
        "train.wandb_writer": "train.tracking_writers",
    },
)
