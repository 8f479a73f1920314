"""One call of an optimizer: its updates, and how far its schedules are."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import optax


def update(
    optimizer: optax.GradientTransformation,
    grads: Any,
    opt_state: Any,
    params: Any,
    **extra_args: Any,
) -> tuple[Any, Any]:
    """Call `optimizer.update`. Integer parameters get an update of exactly zero.

    Args:
      optimizer: The optimizer.
      grads: The gradients, those of integer parameters as `with_zeros` gives them.
      opt_state: The optimizer's state.
      params: The parameters.
      **extra_args: What some optimizers ask for: `value`, `grad`, `value_fn`. Others
        do not get them.

    Returns:
      The updates and the new state.
    """
    updates, new_state = optimizer.update(
        grads, opt_state, params, **_accepted(optimizer.update, extra_args)
    )
    if not any(map(_is_integer, jax.tree.leaves(params))):
        return updates, new_state
    # Weight decay, for example, does not ask what it decays; and moments made for
    # integers must stay integers from step to step.
    updates = jax.tree.map(
        lambda u, p: jnp.zeros_like(p) if _is_integer(p) else u, updates, params
    )
    return updates, jax.tree.map(
        lambda new, old: jnp.asarray(new, old.dtype), new_state, opt_state
    )


def with_zeros(grads: Any, params: Any) -> Any:
    """Return the gradients with zeros for integer parameters, where JAX has none."""
    return jax.tree.map(
        lambda g, p: jnp.zeros(p.shape) if g.dtype == jax.dtypes.float0 else g,
        *(grads, params),
    )


def _is_integer(param: Any) -> bool:
    return not jnp.issubdtype(param.dtype, jnp.inexact)


def _accepted(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    # Asked of the signature, since not all that take them are
    # `GradientTransformationExtraArgs`: `optax.MultiSteps` is not.
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


#
# How far the schedules are
#


_STATES = (
    optax.ScaleByScheduleState,
    optax.InjectHyperparamsState,
    optax.InjectStatefulHyperparamsState,
)


def schedule_counts(opt_state: Any) -> list[jax.Array]:
    """Return the counts at which the next update evaluates its schedules.

    Usually that is the number of the step. It is not where an optimizer does not update
    at each step: under `optax.MultiSteps`, or `optax.apply_if_finite`.

    Example:
      >>> optimizer = optax.adam(optax.constant_schedule(0.1))
      >>> [int(count) for count in schedule_counts(optimizer.init(1.0))]
      [0]
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda n: isinstance(n, _STATES))
    return [node.count for node in nodes if isinstance(node, _STATES)]
