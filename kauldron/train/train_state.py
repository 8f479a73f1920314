"""What training changes, and what a checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import flax.struct

from kauldron.ckpts import items


@flax.struct.dataclass(kw_only=True)
class TrainState(items.StandardCheckpointItem):
    """State of training after `step` updates; an immutable pytree.

    Attributes:
      step: Number of updates applied, an int32 scalar.
      params: Parameters of the model.
      collections: Other flax collections, such as batch statistics.
      opt_state: State of the optimizer.
    """

    step: Any = None
    params: Any = None
    collections: Any = None
    opt_state: Any = None

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...
