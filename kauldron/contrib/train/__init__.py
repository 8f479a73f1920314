"""Other ways to train; imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.contrib.train.file_writers import GifVideoWriter as GifVideoWriter
    from kauldron.contrib.train.file_writers import NpzWriter as NpzWriter
    from kauldron.contrib.train.steps import MultiTrainStep as MultiTrainStep
    from kauldron.contrib.train.steps import NoopTrainStep as NoopTrainStep
    from kauldron.contrib.train.steps import (
        multi_optimizer as multi_optimizer,
    )
    from kauldron.contrib.train.tracking_writers import (
        MLFlowMetricWriter as MLFlowMetricWriter,
    )
    from kauldron.contrib.train.tracking_writers import WandbWriter as WandbWriter

# A file must not have the name of a member: importing it would hide the member.
_MEMBERS = {
    "multi_optimizer": "steps",
    "MultiTrainStep": "steps",
    "NoopTrainStep": "steps",
    "NpzWriter": "file_writers",
    "GifVideoWriter": "file_writers",
    "MLFlowMetricWriter": "tracking_writers",
    "WandbWriter": "tracking_writers",
}

__getattr__, __dir__ = lazy_namespace(
    __name__, {name: f"{__name__}.{file}:{name}" for name, file in _MEMBERS.items()}
)
