"""Transformations: freezing, chains with names, decay to the start, averages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kauldron.immutabledict import unfreeze
from kauldron.optim.masks import record

#
# Train some of the parameters and freeze the rest
#


class PartialUpdates(optax.GradientTransformationExtraArgs):
    """What `partial_updates` gives: a transformation that knows what it trains."""

    is_trained: Callable[[Any], Any]  # from parameters to bools, perhaps a prefix

    def __new__(cls, init: Any, update: Any, is_trained: Any) -> PartialUpdates:
        self = super().__new__(cls, init, update)
        self.is_trained = is_trained
        return self


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

    mask = unfreeze(mask)  # a config holds an `ImmutableDict`, parameters are dicts

    def is_trained(params: Any) -> Any:
        return jax.tree.map(_as_bool, mask(params) if callable(mask) else mask)

    def labels(params: Any) -> Any:
        return jax.tree.map(lambda m: "train" if m else "freeze", is_trained(params))

    transform = optax.multi_transform(
        {"train": optimizer, "freeze": _set_to_zero()},
        labels,
        mask_compatible_extra_args=True,
    )

    def init(params: Any) -> optax.OptState:
        if jax.tree.leaves(params) and not any(jax.tree.leaves(is_trained(params))):
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

    return PartialUpdates(init, update, is_trained)


partial_update = partial_updates


def _fill_in(selected: Any, params: Any) -> Any:
    """Return all parameters: those that a line search tries, and the frozen ones."""
    return jax.tree.map(
        lambda new, old: old if isinstance(new, optax.MaskedNode) else new,
        *(selected, params),
        is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )


def _set_to_zero() -> optax.GradientTransformation:
    """Make an `optax.set_to_zero` that takes integer parameters too."""

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


#
# Chains with names
#


def named_chain(
    **transforms: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Chain transformations that have names in configs, contexts and checkpoints.

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
    for name, transform in transforms.items():
        if not (hasattr(transform, "init") and hasattr(transform, "update")):
            raise TypeError(
                f"named_chain({name}={transform!r}) needs an optax transformation, such "
                "as `optax.adam(1e-3)`."
            )
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
    """Warn of `partial_updates` that freeze what a part before them trained."""
    masks = [jax.tree.broadcast(t.is_trained(params), params) for t in partial.values()]
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(masks[0])]
    for path, *leaves in zip(paths, *map(jax.tree.leaves, masks)):
        if all(leaves) or not any(leaves):
            continue
        names = list(partial)
        trains, freezes = names[leaves.index(True)], names[leaves.index(False)]
        path = jax.tree_util.keystr(path, simple=True, separator=".")
        warnings.warn(
            f"named_chain: {trains!r} trains {path!r} and {freezes!r} freezes it, so it "
            "stays as it is. `partial_updates` freezes all that its mask leaves out; for "
            "several optimizers, each for its own parameters, use optax.masked(optimizer, "
            "mask) instead.",
            stacklevel=3,
        )
        return


#
# Weight decay towards the initial parameters
#


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


#
# An average of the parameters
#


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
