"""What training changes, and what a checkpoint holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct

from kauldron.ckpts import items


class TrainState(flax.struct.PyTreeNode, items.StandardCheckpointItem):
    """State of training after `step` updates; an immutable pytree.

    Attributes:
      step: Number of updates applied, an int32 scalar.
      params: Parameters of the model.
      collections: Other flax collections, such as batch statistics.
      opt_state: State of the optimizer.
    """

    _: dataclasses.KW_ONLY
    step: Any = None
    params: Any = None
    collections: Any = None
    opt_state: Any = None
