"""Iterators over batches, as checkpoints see them (`kd.data.iters`)."""

from typing import TYPE_CHECKING

from kauldron.lazy_namespace import lazy_namespace

if TYPE_CHECKING:
    from kauldron.data.iters.iterator import Iterator as Iterator
    from kauldron.data.iters.iterator import as_iterator as as_iterator
    from kauldron.data.iters.non_checkpointable import (
        NonCheckpointableIterator as NonCheckpointableIterator,
    )
    from kauldron.data.iters.noop_handler import NoopArg as NoopArg
    from kauldron.data.iters.noop_handler import NoopHandler as NoopHandler
    from kauldron.data.iters.py_grain_iterator import PyGrainIterator as PyGrainIterator
    from kauldron.data.iters.state_handler import (
        PyGrainCheckpointHandler as PyGrainCheckpointHandler,
    )
    from kauldron.data.iters.state_handler import (
        PyGrainCheckpointRestore as PyGrainCheckpointRestore,
    )
    from kauldron.data.iters.state_handler import (
        PyGrainCheckpointSave as PyGrainCheckpointSave,
    )

_HERE = "kauldron.data.iters"

# Lazy, because the handlers import Orbax and TFDataIterator imports TensorFlow.
__getattr__, __dir__ = lazy_namespace(
    __name__,
    {
        "Iterator": f"{_HERE}.iterator:Iterator",
        "PyGrainIterator": f"{_HERE}.py_grain_iterator:PyGrainIterator",
        "NonCheckpointableIterator": (
            f"{_HERE}.non_checkpointable:NonCheckpointableIterator"
        ),
        "TFDataIterator": "kauldron.data.tf.tf_iterator:TFDataIterator",
        "as_iterator": f"{_HERE}.iterator:as_iterator",
        "PyGrainCheckpointHandler": f"{_HERE}.state_handler:PyGrainCheckpointHandler",
        "PyGrainCheckpointSave": f"{_HERE}.state_handler:PyGrainCheckpointSave",
        "PyGrainCheckpointRestore": f"{_HERE}.state_handler:PyGrainCheckpointRestore",
        "NoopHandler": f"{_HERE}.noop_handler:NoopHandler",
        "NoopArg": f"{_HERE}.noop_handler:NoopArg",
    },
)
