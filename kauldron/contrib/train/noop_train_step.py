"""A step that does nothing: what remains is the time of everything else."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from kauldron.train.context import Context
from kauldron.train.train_state import TrainState
from kauldron.train.train_step import TrainStep


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoopTrainStep(TrainStep):
    """Counts steps and computes nothing, to measure how fast the data comes.

    The state has no parameters, and nothing is measured: losses, metrics and summaries
    of the trainer are left out.
    """

    def init(self, elem_spec: Any, **kwargs: Any) -> TrainState:
        del elem_spec, kwargs
        return TrainState(
            step=jnp.zeros((), jnp.int32), params={}, collections={}, opt_state={}
        )

    def _step(self, state: TrainState, batch: Any) -> tuple[TrainState, Context]:
        context = Context.from_state_and_batch(state=state, batch=batch)
        return state.replace(step=state.step + 1), context.replace(
            loss_states={}, metric_states={}, summary_states={}
        )
