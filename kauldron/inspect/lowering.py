"""The train step as the compiler sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from kauldron.sharding.tree import flatten_with_shardings
from kauldron.train import trainer_specs

if TYPE_CHECKING:
    from kauldron.train import Trainer


def lower_trainstep(trainer: Trainer, **flags: Any) -> jax.stages.Lowered:
    """Lower `trainer.trainstep.step`, without data and without parameters.

    Args:
      trainer: The experiment.
      **flags: Of `TrainStep.step`, such as `return_metrics=True`.

    Returns:
      The lowered step. `.as_text()` shows it; `.compile()` gives its costs
      (`cost_analysis()`) and its memory (`memory_analysis()`).
    """
    return trainer.trainstep.step.lower(
        trainer.state_specs, batch_specs(trainer), **flags
    )


def batch_specs(trainer: Trainer) -> Any:
    """A global batch as shapes, placed as in training."""
    specs = trainer_specs.batch_specs(trainer)
    leaves = [
        jax.ShapeDtypeStruct(leaf.value.shape, leaf.value.dtype, sharding=leaf.sharding)
        for leaf in flatten_with_shardings(specs, trainer.sharding.batch)
    ]
    return jax.tree.unflatten(jax.tree.structure(specs), leaves)
