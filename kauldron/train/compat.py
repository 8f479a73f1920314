"""Older names and import paths, kept for code and pickles that use them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kauldron.lazy_namespace import older_modules
from kauldron.train import auxiliaries
from kauldron.train.forward import forward_with_loss

if TYPE_CHECKING:
    import jax

    from kauldron.train.state import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelWithAux:
    """Deprecated: use `kd.train.forward_with_loss` and `Auxiliaries.update_context`.

    Attributes:
      model: The flax module.
      losses: Losses by name.
      metrics: Metrics by name.
      summaries: Summaries by name.
    """

    model: Any
    losses: Mapping[str, Any]
    metrics: Mapping[str, Any]
    summaries: Mapping[str, Any]

    def forward(
        self, context: Context, *, rngs: Mapping[str, Any], is_training: bool
    ) -> tuple[jax.Array, Context]:
        """Return the total loss, and the context with predictions and loss states."""
        _warn("forward", "kd.train.forward_with_loss")
        return forward_with_loss(
            context,
            model=self.model,
            losses=self.losses,
            rngs=rngs,
            is_training=is_training,
        )

    def get_aux(
        self, context: Context, **return_flags: bool
    ) -> auxiliaries.AuxiliariesState:
        """Return the states that the flags (`return_losses=True`, ...) ask for."""
        _warn("get_aux", "kd.train.Auxiliaries.update_context")
        aux = auxiliaries.Auxiliaries(
            losses=self.losses, metrics=self.metrics, summaries=self.summaries
        )
        return aux.update_context(context).get_aux_state(**return_flags)


def _warn(method: str, replacement: str) -> None:
    warnings.warn(
        f"ModelWithAux.{method} is deprecated: use {replacement}.",
        DeprecationWarning,
        stacklevel=3,
    )


older_modules(
    "kauldron.train",
    {
        "checkpoint_state": "state",
        "context": "state",
        "model_with_aux": "compat",
        "preemption": "run.preemption",
        "profiler": "run.profiler",
        "train_state": "state",
    },
)
