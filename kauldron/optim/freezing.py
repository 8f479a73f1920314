"""Train some of the parameters and freeze the rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


class PartialUpdates(optax.GradientTransformationExtraArgs):
    """What `partial_updates` gives: a transformation that knows its mask."""

    mask: Any

    def __new__(cls, init: Any, update: Any, mask: Any) -> PartialUpdates:
        self = super().__new__(cls, init, update)
        self.mask = mask
        return self

    def mask_of(self, params: Any) -> Any:
        """A bool for each of the parameters: whether it is trained."""
        tree = self.mask(params) if callable(self.mask) else self.mask
        return jax.tree.broadcast(jax.tree.map(_as_bool, tree), params)


def partial_updates(
    optimizer: optax.GradientTransformation, mask: Any | Callable[[Any], Any]
) -> optax.GradientTransformationExtraArgs:
    """Optimise only the parameters that a mask selects.

    All other updates are exactly zero. The optimizer sees the selected parameters only:
    it keeps no state for the others, and norms are over the selected ones.

    Two of them in a chain would freeze what the other one trains. For several optimizers,
    each for its own parameters, chain `optax.masked(optimizer, mask)` instead.

    Args:
      optimizer: What to update the selected parameters with.
      mask: `kd.optim.select(...)`, `kd.optim.exclude(...)`, another function from the
        parameters to a tree of bools, or such a tree, which may be a prefix.

    Returns:
      The transformation; its state is that of `optax.multi_transform` with the labels
      `train` and `freeze`.

    Example:
      >>> from kauldron import kd
      >>> params = {"encoder": jnp.ones(2), "head": jnp.ones(2)}
      >>> optimizer = kd.optim.partial_updates(optax.sgd(0.1), kd.optim.select("head"))
      >>> updates, _ = optimizer.update(params, optimizer.init(params), params)
      >>> updates["encoder"].tolist()
      [0.0, 0.0]
    """

    def labels(params: Any) -> Any:
        tree = mask(params) if callable(mask) else mask
        return jax.tree.map(lambda m: "train" if _as_bool(m) else "freeze", tree)

    transform = optax.multi_transform(
        {"train": optimizer, "freeze": _set_to_zero()},
        labels,
        mask_compatible_extra_args=True,
    )

    def init(params: Any) -> optax.OptState:
        if jax.tree.leaves(params) and "train" not in jax.tree.leaves(labels(params)):
            warnings.warn(_nothing_selected_message(mask, params), stacklevel=2)
        return transform.init(params)

    def update(
        updates: Any, state: Any, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Any]:
        value_fn = extra_args.get("value_fn")
        if value_fn is not None:
            extra_args["value_fn"] = lambda selected: value_fn(
                _fill_in(selected, params)
            )
        return transform.update(updates, state, params, **extra_args)

    return PartialUpdates(init, update, mask)


partial_update = partial_updates


def _fill_in(selected: Any, params: Any) -> Any:
    """All parameters: those that a line search tries, and the frozen ones."""
    return jax.tree.map(
        lambda new, old: old if isinstance(new, optax.MaskedNode) else new,
        *(selected, params),
        is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )


def _set_to_zero() -> optax.GradientTransformation:
    """`optax.set_to_zero`, also for the gradients of integer parameters."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            return jax.tree.map(jnp.zeros_like, updates), state
        return jax.tree.map(_zero_update, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _zero_update(update: Any, param: Any) -> jax.Array:
    return jnp.zeros_like(param if update.dtype == jax.dtypes.float0 else update)


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError(
        f"A mask is a tree of bools; one leaf is of type {type(value).__name__}: "
        f"{value!r:.80}."
    )


def _nothing_selected_message(mask: Any, params: Any) -> str:
    names = list(
        dict.fromkeys(
            jax.tree_util.keystr(path[:1], simple=True) or "(the array)"
            for path, _ in jax.tree_util.tree_leaves_with_path(params)
        )
    )
    return (
        f"The mask {mask!r:.200} selects no parameter: nothing will be trained by its "
        f"optimizer. Top-level parameters: {', '.join(names)}."
    )
