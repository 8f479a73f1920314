"""The train step of `custom_step.py`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron import kd


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SignStep(kd.train.TrainStep):
    """Moves every parameter by the same amount, against the sign of its gradient.

    Attributes:
      learning_rate: The amount.
    """

    learning_rate: float = 1e-3

    def _step(self, state: kd.train.TrainState, batch: Any):
        context = kd.train.Context.from_state_and_batch(state=state, batch=batch)

        def loss_of(params):
            return kd.train.forward_with_loss(
                context.replace(params=params),
                model=self.model,
                losses=self.aux.losses,
                rngs=self.rng_streams.train_rngs(state.step),
                is_training=True,
            )

        grads, context = jax.grad(loss_of, has_aux=True)(state.params)
        updates = jax.tree.map(lambda g: -self.learning_rate * jnp.sign(g), grads)
        state = state.replace(
            step=state.step + 1,
            params=jax.tree.map(jnp.add, state.params, updates),
        )
        context = context.replace(grads=grads, updates=updates)
        return state, self.aux.update_context(context)
