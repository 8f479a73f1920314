"""Shapes of the state and the context of a trainer, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from kauldron import sharding as kd_sharding
from kauldron.data import utils as data_utils
from kauldron.train import batch_checks, trainer_fields

if TYPE_CHECKING:
    from kauldron.train.context import Context
    from kauldron.train.train_state import TrainState
    from kauldron.train.trainer import Trainer


def state_specs(trainer: Trainer, *, element_spec: Any = None) -> TrainState:
    """The state as `jax.ShapeDtypeStruct`s with shardings."""
    return kd_sharding.eval_shape_with_sharding(
        lambda: trainer.init_state(skip_transforms=True, element_spec=element_spec)
    )


def batch_specs(trainer: Trainer) -> Any:
    """A global batch of `train_ds` as `jax.ShapeDtypeStruct`s."""
    train_ds = trainer_fields.require(trainer, "train_ds")
    sharding = trainer.sharding.batch
    batch_checks.check_numbers(train_ds.element_spec)
    spec = data_utils.get_global_elem_spec(train_ds.element_spec, sharding)
    return jax.eval_shape(lambda: data_utils.mock_batch_from_elem_spec(spec, sharding))


def context_specs(trainer: Trainer) -> Context:
    """The context after one train step as `jax.ShapeDtypeStruct`s."""
    with trainer.sharding.set_global_mesh():
        _, context = jax.eval_shape(
            trainer.trainstep._checked_step, trainer.state_specs, batch_specs(trainer)
        )
    return context
