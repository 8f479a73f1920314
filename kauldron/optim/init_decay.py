"""Weight decay towards the initial parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class DecayToInitState(NamedTuple):
    """State of `decay_to_init` with a constant weight decay."""

    init_params: Any


class ScheduledDecayToInitState(NamedTuple):
    """State of `decay_to_init` with a schedule."""

    init_params: Any
    count: jax.Array


def decay_to_init(
    weight_decay: float | jax.Array | optax.Schedule,
    mask: Any | Callable[[Any], Any] | None = None,
) -> optax.GradientTransformation:
    """Pull the parameters back to where they started (L2-SP, Li et al. 2018).

    Adds `weight_decay * (params - init_params)` to the updates. Put it where
    `optax.add_decayed_weights` would go, before the scaling by the learning rate. When
    fine-tuning, the initial parameters are the loaded ones.

    Args:
      weight_decay: A number, or a schedule of the number of updates.
      mask: Which parameters to decay: `kd.optim.exclude("bias")`, another function from
        the parameters to a tree of bools, or such a tree. Others are not stored.

    Returns:
      The transformation.

    References:
      Li et al., [Explicit Inductive Bias for Transfer Learning with Convolutional
      Networks](https://arxiv.org/abs/1802.01483), 2018

    Example:
      >>> optimizer = optax.chain(decay_to_init(0.5), optax.sgd(1.0))
      >>> state = optimizer.init(jnp.zeros(()))
      >>> updates, _ = optimizer.update(jnp.zeros(()), state, jnp.full((), 3.0))
      >>> float(updates)
      -1.5
    """
    is_schedule = callable(weight_decay)

    def init(params: Any) -> Any:
        # A copy: the memory of the parameters themselves may be reused by the next step.
        init_params = jax.tree.map(jnp.array, params)
        if is_schedule:
            return ScheduledDecayToInitState(init_params, jnp.zeros((), jnp.int32))
        return DecayToInitState(init_params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "decay_to_init needs the current parameters: call "
                "`update(grads, state, params)`."
            )
        rate = weight_decay(state.count) if callable(weight_decay) else weight_decay

        def decay(update: Any, param: Any, init_param: Any) -> Any:
            if update.dtype == jax.dtypes.float0:  # an integer parameter
                return update
            return update + jnp.asarray(rate * (param - init_param), update.dtype)

        updates = jax.tree.map(decay, updates, params, state.init_params)
        if is_schedule:
            state = state._replace(count=optax.safe_increment(state.count))
        return updates, state

    transform = optax.GradientTransformation(init, update)
    return transform if mask is None else optax.masked(transform, mask)
