"""An exponential moving average of the parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from kauldron.optim.recording import record


class EmaParamsState(NamedTuple):
    """State of `ema_params`.

    Attributes:
      count: Number of updates.
      ema_params: The average; a tree like the parameters.
    """

    count: jax.Array
    ema_params: Any


def ema_params(
    *, decay: float, debias: bool = True, accumulator_dtype: Any = None
) -> optax.GradientTransformation:
    """Track an exponential moving average of the parameters.

    Updates pass unchanged. Has to be the last part of a chain, where the updates are
    what will be added to the parameters. Evaluate with the average through
    `kd.evals.Evaluator(init_transform=kd.optim.UseEmaParams())`.

    Args:
      decay: Share of the old average that is kept at each update, from 0 to 1.
      debias: Whether to keep less in the beginning, `(1 + count) / (10 + count)`, so
        that the initial parameters are soon forgotten.
      accumulator_dtype: Dtype of the average. By default that of the parameters, and
        float32 for 16-bit ones, whose small changes would be rounded away.

    Returns:
      The transformation; its state is an `EmaParamsState`.

    Example:
      >>> optimizer = optax.chain(optax.sgd(1.0), ema_params(decay=0.5, debias=False))
      >>> state = optimizer.init(jnp.zeros(()))
      >>> _, state = optimizer.update(jnp.full((), -1.0), state, jnp.zeros(()))
      >>> float(state[1].ema_params)  # half of the old 0, half of the new 1
      0.5
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"ema_params: decay must be from 0 to 1, got {decay!r}.")

    def init(params: Any) -> EmaParamsState:
        average = jax.tree.map(
            lambda p: jnp.array(p, dtype=_average_dtype(p, accumulator_dtype)), params
        )
        return EmaParamsState(jnp.zeros((), jnp.int32), average)

    def update(
        updates: Any, state: EmaParamsState, params: Any = None
    ) -> tuple[Any, EmaParamsState]:
        if params is None:
            raise ValueError(
                "ema_params needs the current parameters: call "
                "`update(grads, state, params)`."
            )
        record("averaged", updates)
        count = optax.safe_increment(state.count)
        kept = jnp.minimum(decay, (1 + count) / (10 + count)) if debias else decay

        def mix(average: Any, param: Any, update: Any) -> Any:
            if not jnp.issubdtype(param.dtype, jnp.inexact):
                return param
            new_param = optax.apply_updates(param, update)
            mixed = kept * average + (1 - kept) * jnp.asarray(new_param, average.dtype)
            return mixed.astype(average.dtype)

        average = jax.tree.map(mix, state.ema_params, params, updates)
        return updates, EmaParamsState(count, average)

    return optax.GradientTransformation(init, update)


def _average_dtype(param: Any, accumulator_dtype: Any) -> Any:
    dtype = jnp.asarray(param).dtype
    if not jnp.issubdtype(dtype, jnp.floating):
        return dtype
    if accumulator_dtype is not None:
        return accumulator_dtype
    return jnp.promote_types(dtype, jnp.float32)
