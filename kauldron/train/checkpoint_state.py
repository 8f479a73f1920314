"""Everything that a checkpoint of training holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from kauldron.ckpts import items
from kauldron.train.train_state import TrainState


class _CheckpointFields(NamedTuple):
    train_state: TrainState
    timer: Any
    ds_iter: Any


class CheckpointState(_CheckpointFields, items.TopLevelCheckpointItem):
    """The train state, the timer, and the position in the data.

    Attributes:
      train_state: A `TrainState` (or its specs, when restoring).
      timer: A `kd.utils.chrono.Chrono`.
      ds_iter: An iterator over the training data.
    """

    DEFAULT_ITEM = "train_state"
