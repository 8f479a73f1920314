"""Chains of transformations with names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import optax

from kauldron.optim.freezing import PartialUpdates


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
    chain = optax.named_chain(*transforms.items())
    partial = {n: t for n, t in transforms.items() if isinstance(t, PartialUpdates)}
    if len(partial) < 2:
        return chain

    def init(params: Any) -> optax.OptState:
        _warn_of_mutual_freezing(partial, params)
        return chain.init(params)

    return optax.GradientTransformationExtraArgs(init, chain.update)


def _warn_of_mutual_freezing(
    partial: Mapping[str, PartialUpdates], params: Any
) -> None:
    """`partial_updates` of other parameters undo what the parts before them did."""
    masks = [
        jax.tree_util.tree_leaves_with_path(t.mask_of(params)) for t in partial.values()
    ]
    for leaves in zip(*masks):
        trained = {name: is_trained for name, (_, is_trained) in zip(partial, leaves)}
        if len(set(trained.values())) < 2:
            continue
        trains = next(name for name in trained if trained[name])
        freezes = next(name for name in trained if not trained[name])
        path = jax.tree_util.keystr(leaves[0][0], simple=True, separator=".")
        warnings.warn(
            f"named_chain: {trains!r} trains {path!r} and {freezes!r} freezes it, so it "
            "stays as it is. `partial_updates` freezes all that its mask leaves out; for "
            "several optimizers, each for its own parameters, use optax.masked(optimizer, "
            "mask) instead.",
            stacklevel=3,
        )
        return
