"""All losses of a context at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from kauldron.metrics.error_text import naming
from kauldron.metrics.metric import Metric


def compute_losses(losses: Any, context: Any) -> tuple[jax.Array, Any]:
    """Compute every loss and their sum; traceable and differentiable.

    Args:
      losses: A tree of losses, usually a dict; or a single loss.
      context: Where their keys find the inputs.

    Returns:
      The float32 sum of all losses, and the tree of their states.

    Raises:
      Exception: What a loss raises, with the name of the loss in front.

    Example:
      >>> import numpy as np
      >>> from kauldron.losses import L1, L2
      >>> losses = {
      ...     "l1": L1(preds="x", targets="y"),
      ...     "l2": L2(preds="x", targets="y", weight=0.5),
      ... }
      >>> total, states = compute_losses(losses, {"x": np.ones(3), "y": -np.ones(3)})
      >>> float(total), float(states["l2"].compute())
      (4.0, 2.0)
    """
    paths_and_losses, structure = jax.tree_util.tree_flatten_with_path(losses)
    states, total = [], jnp.zeros((), jnp.float32)
    with jax.named_scope("losses"):
        for path, loss in paths_and_losses:
            name = jax.tree_util.keystr(path, simple=True, separator="/") or "loss"
            with naming(lambda: f"In loss {name!r}: "), jax.named_scope(name):  # noqa: B023
                state = _get_state(loss, context)
                # A loss that was switched off computes `{}`.
                total += sum(jax.tree.leaves(state.compute()))
            states.append(state)
    return total.astype(jnp.float32), structure.unflatten(states)


def _get_state(loss: Any, context: Any) -> Any:
    if not isinstance(loss, Metric):
        raise TypeError(f"a loss was expected, not {loss!r}.")
    loss.check_padding(context)
    return loss.get_state_from_context(context)
