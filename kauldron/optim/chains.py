"""Chains of transformations with names."""

from __future__ import annotations

import optax


def named_chain(
    **transforms: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """`optax.chain` whose parts have names, in configs, contexts and checkpoints.

    Args:
      **transforms: Applied in this order.

    Returns:
      The transformation. Its state maps the names to the states of the parts:
      `opt_state.adam.mu`.

    Example:
      >>> import jax.numpy as jnp
      >>> chain = named_chain(clip=optax.clip(1.0), sgd=optax.sgd(0.1))
      >>> list(chain.init(jnp.ones(2)))
      ['clip', 'sgd']
    """
    return optax.named_chain(*transforms.items())
