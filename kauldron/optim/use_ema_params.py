"""`UseEmaParams`: evaluate with the average of the parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron import kontext
from kauldron.ckpts import InitTransform
from kauldron.errors import ReadableKeyError
from kauldron.optim.transforms import EmaParamsState


@dataclasses.dataclass(frozen=True, kw_only=True)
class UseEmaParams(InitTransform):
    """Put the average that `ema_params` tracks in place of the parameters.

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
        """Return the state with averaged parameters, in the parameters' dtypes."""
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
    """Return the states of `ema_params` by their paths."""
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
