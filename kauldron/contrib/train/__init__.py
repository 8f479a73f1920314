"""Other ways to train; imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.contrib.train.gif_video_writer import GifVideoWriter as GifVideoWriter
    from kauldron.contrib.train.loss_optimizers import (
        multi_optimizer as multi_optimizer,
    )
    from kauldron.contrib.train.mlflow_metric_writer import (
        MLFlowMetricWriter as MLFlowMetricWriter,
    )
    from kauldron.contrib.train.multi_train_step import MultiTrainStep as MultiTrainStep
    from kauldron.contrib.train.noop_train_step import NoopTrainStep as NoopTrainStep
    from kauldron.contrib.train.npz_writer import NpzWriter as NpzWriter
    from kauldron.contrib.train.wandb_writer import WandbWriter as WandbWriter

# A file must not have the name of a member: importing it would hide the member.
_MEMBERS = {
    "multi_optimizer": "loss_optimizers",
    "MultiTrainStep": "multi_train_step",
    "NoopTrainStep": "noop_train_step",
    "NpzWriter": "npz_writer",
    "GifVideoWriter": "gif_video_writer",
    "MLFlowMetricWriter": "mlflow_metric_writer",
    "WandbWriter": "wandb_writer",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{file}:{name}" for name, file in _MEMBERS.items()}
)
