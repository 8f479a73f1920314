"""Older names and module paths, kept for code that imports them.

Importing this imports no jax: naming a strategy in a config must not.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any

from kauldron.lazy_namespace import older_modules

if TYPE_CHECKING:
    from kauldron.train import AuxiliariesState


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionKeys:
    """Names of what a collection measures.

    Attributes:
      losses: Names of the losses.
      metrics: Names of the metrics.
      summaries: Names of the summaries.
    """

    losses: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()


def basic_eval_step(
    *,
    model_with_aux: Any,
    rng_streams: Any,
    step_nr: int,
    state: Any,
    batch: Any,
    sharding: Any,
) -> AuxiliariesState:
    """Deprecated: override `Evaluator._step`."""
    warnings.warn(
        "basic_eval_step is deprecated: override `Evaluator._step`.",
        DeprecationWarning,
        stacklevel=2,
    )
    step = _eval_step()
    return step(model_with_aux, rng_streams, sharding, step_nr, state, batch)


@functools.cache
def _eval_step() -> Any:
    import jax

    from kauldron import sharding as kd_sharding
    from kauldron.train import Auxiliaries, Context, forward

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def step(
        model_with_aux: Any, rng_streams: Any, sharding: Any, step_nr: Any, *data: Any
    ) -> AuxiliariesState:
        state, batch = data
        context = forward(
            Context.from_state_and_batch(state=state, batch=batch),
            model=model_with_aux.model,
            rngs=rng_streams.eval_rngs(step_nr),
            is_training=False,
        )
        aux = Auxiliaries(
            losses=model_with_aux.losses,
            metrics=model_with_aux.metrics,
            summaries=model_with_aux.summaries,
        )
        states = aux.update_context(context).get_aux_state(
            return_losses=True, return_metrics=True, return_summaries=True
        )
        return kd_sharding.with_sharding_constraint(states, sharding.aux)

    return step


older_modules(
    "kauldron.evals",
    {
        "evaluators": "evaluator evaluator_base compat",
        "fewshot_evaluator": "few_shot_evaluator",
    },
)
