"""Older module paths, which pickles, saved configs and other code may name."""

from kauldron.lazy_namespace import older_modules

older_modules(
    "kauldron.contrib",
    {
        "checkpoints": "ckpts",
        "ckpts.best_n": "ckpts.policies",
        "ckpts.exp_step": "ckpts.policies",
        "data.arithmetic": "data.values",
        "data.image_predicates": "data.predicates",
        "data.lazy_array_record": "data.sources",
        "data.padding": "data.images",
        "data.patch_normalization": "data.values",
        "data.random_images": "data.images",
        "data.spatial_crops": "data.images",
        "data.stacks": "data.axes",
        "data.temporal_windows": "data.clips",
        "data.video_axes": "data.axes",
        "evals.stop_schedules": "evals.train_evaluator",
        "metrics.average_precision": "metrics.classification",
        "metrics.depth": "metrics.regression",
        "metrics.joint_accuracy": "metrics.classification",
        "metrics.psnr_with_resize": "metrics.regression",
        "summaries.confusion_matrix": "summaries.values",
        "summaries.image_grid": "summaries.images",
        "summaries.printed_values": "summaries.values",
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
