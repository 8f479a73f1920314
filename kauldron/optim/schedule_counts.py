"""How far the schedules inside an optimizer are."""

from __future__ import annotations

from typing import Any

import jax
import optax

_STATES = (
    optax.ScaleByScheduleState,
    optax.InjectHyperparamsState,
    optax.InjectStatefulHyperparamsState,
)


def schedule_counts(opt_state: Any) -> list[jax.Array]:
    """The counts at which the next update evaluates its schedules.

    Usually that is the number of the step. It is not where an optimizer does not update
    at each step: under `optax.MultiSteps`, or `optax.apply_if_finite`.

    Example:
      >>> optimizer = optax.adam(optax.constant_schedule(0.1))
      >>> [int(count) for count in schedule_counts(optimizer.init(1.0))]
      [0]
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda n: isinstance(n, _STATES))
    return [node.count for node in nodes if isinstance(node, _STATES)]
