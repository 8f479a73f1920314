"""The average of the parameters: tracked in training, used in evaluation."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from kauldron import kontext
from kauldron.ckpts import InitTransform
from kauldron.errors import ReadableKeyError
from kauldron.optim.masks import record

#
# Tracking it
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


#
# Evaluating with it
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class UseEmaParams(InitTransform):
    """Put the average that `ema_params` tracks in the place of the parameters.

    Used as `kd.evals.Evaluator(init_transform=kd.optim.UseEmaParams())`.

    Attributes:
      ema_params_transform: Path in the optimizer state to the state of `ema_params`, if
        there are several.
      partial_ok: Whether to keep the current value of parameters without average
        (frozen ones), instead of raising `KeyError`.
    """

    ema_params_transform: str | None = None
    partial_ok: bool = False

    def transform(self, state: Any) -> Any:
        """The state with the averaged parameters, in the parameters' own dtypes."""
        found = self._find_average(state.opt_state)
        average = dict(jax.tree_util.tree_leaves_with_path(found))
        leaves, structure = jax.tree_util.tree_flatten_with_path(state.params)
        params = [
            self._choose(path, param, average.get(path)) for path, param in leaves
        ]
        return state.replace(params=jax.tree.unflatten(structure, params))

    def check(self, state: Any = None) -> None:
        if state is not None:
            jax.eval_shape(self.transform, state)

    def _choose(self, path: Any, param: Any, average: Any) -> Any:
        if average is not None:
            return _like(param, average)
        if self.partial_ok:
            return param
        raise ReadableKeyError(
            f"The parameter {kontext.Path.from_jax_path(path)} has no average: it is "
            "frozen, or `ema_params` does not see it. With "
            "`UseEmaParams(partial_ok=True)` its current value is used."
        )

    def _find_average(self, opt_state: Any) -> Any:
        if self.ema_params_transform is not None:
            found = kontext.get_by_path(opt_state, self.ema_params_transform, None)
            if not hasattr(found, "ema_params"):
                raise ValueError(
                    f"UseEmaParams: the optimizer state has no `ema_params` at "
                    f"{self.ema_params_transform!r}. {_describe(opt_state)}"
                )
            return found.ema_params
        found = _ema_states(opt_state)
        if len(found) != 1:
            problem = "no" if not found else "more than one"
            raise ValueError(
                f"UseEmaParams: {problem} EmaParamsState found in the optimizer state. "
                + _describe(opt_state)
            )
        return next(iter(found.values())).ema_params


def _ema_states(opt_state: Any) -> dict[str, EmaParamsState]:
    """The states of `ema_params` by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(
        opt_state, is_leaf=lambda x: isinstance(x, EmaParamsState)
    )
    return {
        str(kontext.Path.from_jax_path(path)): leaf
        for path, leaf in leaves
        if isinstance(leaf, EmaParamsState)
    }


def _describe(opt_state: Any) -> str:
    if opt_state is None:
        return (
            "The state has no optimizer state: it was not loaded, or was discarded "
            "before (see `discard_opt` of evaluators)."
        )
    found = list(_ema_states(opt_state))
    if not found:
        return "Add `kd.optim.ema_params(...)` at the end of the optimizer's chain."
    return f"There is one at: {', '.join(found)}. Choose by `ema_params_transform=`."


def _like(param: Any, average: Any) -> Any:
    value = jnp.asarray(average, dtype=param.dtype)
    sharding = getattr(param, "sharding", None)
    if isinstance(value, jax.core.Tracer) or sharding is None:
        return value
    return jax.device_put(value, sharding)
