"""What training changes, what a step knows, and what a checkpoint holds."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self

import flax.struct

from kauldron import kontext
from kauldron.batch_mask import batch_mask_of
from kauldron.ckpts import items
from kauldron.optim.updates import schedule_counts
from kauldron.train import auxiliaries, display


class TrainState(flax.struct.PyTreeNode, items.StandardCheckpointItem):
    """State of training after `step` updates; an immutable pytree.

    Attributes:
      step: Number of updates applied, an int32 scalar.
      params: Parameters of the model.
      collections: Other flax collections, such as batch statistics.
      opt_state: State of the optimizer.
    """

    _: dataclasses.KW_ONLY
    step: Any = None
    params: Any = None
    collections: Any = None
    opt_state: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The decorator that makes a dataclass would give it another one.
        cls.__repr__ = cls.__repr__
        super().__init_subclass__(**kwargs)

    def __repr__(self) -> str:
        return display.state_text(self)

    def _repr_html_(self) -> str:
        return display.state_html(self)


class _CheckpointFields(NamedTuple):
    train_state: TrainState
    timer: Any
    ds_iter: Any


class CheckpointState(_CheckpointFields, items.TopLevelCheckpointItem):
    """The train state, the timer, and the position in the data.

    Attributes:
      train_state: A `TrainState` (or its specs, when restoring).
      timer: A `kd.utils.chrono.Chrono`.
      ds_iter: An iterator over the training data.
    """

    DEFAULT_ITEM = "train_state"


_FILLED = {
    "preds": "it is available after the forward pass, if the model returns something",
    "interms": "it is available after the forward pass",
    "loss_states": "it is available after the losses",
    "loss_total": "it is available only in train steps, after the losses",
    "grads": "it is available only in train steps, after the backward pass",
    "updates": "it is available only in train steps, after the backward pass",
    "opt_state": "it is available only where the state has an optimizer",
}


class Context(flax.struct.PyTreeNode):
    """Everything that is known during a step, filled in as it goes.

    The field names are what keys may start with: `"batch.image"`, `"preds.logits"`,
    `"interms.encoder.__call__[0]"`, `"grads"`. Subclasses may add fields.

    Attributes:
      step: Global step number.
      batch: The batch.
      params: Parameters of the model, before the update.
      collections: Other flax collections, such as batch statistics.
      preds: Output of the model.
      interms: Intermediate values, as flax captures them.
      loss_states: States of the losses.
      loss_total: Sum of the losses; `None` in evaluation.
      grads: Gradients of `loss_total`; `None` in evaluation.
      updates: What the optimizer adds to the parameters; `None` in evaluation.
      opt_state: State of the optimizer before the update.
      metric_states: States of the metrics.
      summary_states: States of the summaries.
    """

    step: Any
    batch: Any
    params: Any = None
    collections: Any = None
    preds: Any = None
    interms: Any = None
    loss_states: Any = None
    loss_total: Any = None
    grads: Any = None
    updates: Any = None
    opt_state: Any = None
    metric_states: Any = None
    summary_states: Any = None

    @classmethod
    def from_state_and_batch(cls, *, state: TrainState, batch: Any) -> Self:
        """Return the context at the start of a step."""
        return cls(
            step=state.step,
            batch=batch,
            params=state.params,
            collections=state.collections,
            opt_state=state.opt_state,
        )

    @property
    def batch_mask(self) -> Any:
        """Which records of a padded batch are real, `bool[b]`; `None` if all are.

        Losses and metrics whose `mask` is not set get it by themselves.
        """
        return batch_mask_of(self)

    def __kontext_unfilled__(self) -> dict[str, str]:
        """Return why fields are empty: they are filled later, or never in evaluation."""
        return {
            name: when for name, when in _FILLED.items() if getattr(self, name) is None
        }

    def flatten(self) -> dict[str, Any]:
        """Return the leaves by dotted path: `{"step": ..., "batch.image": ...}`."""
        return kontext.flatten_with_path(self)

    def get_aux_state(
        self,
        *,
        return_losses: bool = False,
        return_metrics: bool = False,
        return_summaries: bool = False,
    ) -> auxiliaries.AuxiliariesState:
        """Return the states that were asked for; the others are `None`."""
        is_logged = return_losses or return_metrics or return_summaries
        return auxiliaries.AuxiliariesState(
            loss_states=self.loss_states if return_losses else None,
            metric_states=self.metric_states if return_metrics else None,
            summary_states=self.summary_states if return_summaries else None,
            schedule_counts=(
                schedule_counts(self.opt_state)
                if is_logged and self.updates is not None
                else None
            ),
        )
