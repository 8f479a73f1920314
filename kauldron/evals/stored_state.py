"""The state of a run, read from its folder without its training data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import ckpts
from kauldron import sharding as kd_sharding
from kauldron.data.utils import spec_from_json
from kauldron.utils import constants
from kauldron.utils.error_context import error_prefix

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState


def read_element_spec(workdir: epath.PathLike) -> Any:
    """Specs of a (global) batch of the run in a folder."""
    path = epath.Path(workdir) / constants.ELEMENT_SPEC_FILENAME
    text = path.read_text()
    with error_prefix(f"{path}: "):
        return spec_from_json(json.loads(text))


def state_specs(
    trainer: Trainer, element_spec: Any, *, with_optimizer: bool
) -> TrainState:
    """The state as `jax.ShapeDtypeStruct`s with shardings.

    Args:
      trainer: Needs a model, and an optimizer if that is wanted.
      element_spec: Specs of a batch.
      with_optimizer: Whether to include the optimizer state.
    """
    return kd_sharding.eval_shape_with_sharding(
        lambda: trainer.init_state(
            skip_transforms=True,
            skip_optimizer=not with_optimizer,
            element_spec=element_spec,
        )
    )


def load_state(specs: TrainState, *, workdir: epath.PathLike, step: int) -> TrainState:
    """The state of a checkpoint.

    Args:
      specs: What to read; where `opt_state` is `None`, it is left alone.
      workdir: Folder of the run.
      step: Which checkpoint; -1 for the newest.
    """
    reader = ckpts.Checkpointer(
        workdir=epath.Path(workdir), save_interval_steps=1, create=False
    )
    return reader.restore(specs, step=step)
