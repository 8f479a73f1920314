"""Metrics that disappear where their inputs do not exist."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct

from kauldron import kontext
from kauldron.metrics.auto_state import AutoState, state_field
from kauldron.metrics.metric import Metric, check_inner_metric
from kauldron.metrics.state import EMPTY
from kauldron.metrics.state import State as BaseState


@dataclasses.dataclass(frozen=True, eq=True)
class SkipIfMissing(Metric):
    """Computes `{}` when a key of the metric finds nothing, or `None`.

    Only the lookup of keys is guarded: errors of the metric itself are raised.

    Attributes:
      metric: The metric whose keys may be missing.

    Example:
      >>> import numpy as np
      >>> from kauldron import metrics
      >>> norm = SkipIfMissing(metrics.Norm(tensor="grads.w"))
      >>> norm(context={"grads": None})
      {}
      >>> float(norm(context={"grads": {"w": np.array([3.0, 4.0])}}))
      5.0
    """

    metric: Metric

    @flax.struct.dataclass(kw_only=True)
    class State(AutoState["SkipIfMissing"]):
        """The state of the metric, or nothing."""

        state: Any = state_field()

        def compute(self) -> Any:
            return {} if self.state is EMPTY else self.state.compute()

    def __post_init__(self) -> None:
        check_inner_metric(self, self.metric)

    def __kontext_keys__(self) -> dict[str, Any]:
        return kontext.get_keypaths(self.metric)

    @property
    def takes_mask(self) -> bool:
        return self.metric.takes_mask

    def get_state(self, **kwargs: Any) -> BaseState:
        return self.State(state=self.metric.get_state(**kwargs))

    def get_state_from_context(self, context: Any) -> BaseState:
        try:
            inputs = self.metric.resolve_inputs(context)
        except KeyError:
            return self.empty()
        if any(value is None for value in inputs.values()):
            return self.empty()
        # Not `get_state(**inputs)`: the metric may find its inputs in its own way.
        return self.State(
            state=self.metric.get_state_from_context(context), parent=self
        )
