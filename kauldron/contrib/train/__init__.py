"""Other ways to train; imported when first used."""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

# A file must not have the name of a member: importing it would hide the member.
with lazy_imports(__name__):
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
