"""What training changes, what a step knows and measures, what a checkpoint holds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import flax.struct
import jax
import numpy as np

from kauldron import config_base, kontext, metrics
from kauldron import losses as kd_losses
from kauldron.batch_mask import batch_mask_of
from kauldron.ckpts import items
from kauldron.immutabledict import freeze
from kauldron.metrics.metric import naming
from kauldron.optim.updates import schedule_counts
from kauldron.train import display


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
        # Otherwise the dataclass decorator would generate a `__repr__` for the subclass.
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
    ) -> AuxiliariesState:
        """Return the states that were asked for; the others are `None`."""
        is_logged = return_losses or return_metrics or return_summaries
        return AuxiliariesState(
            loss_states=self.loss_states if return_losses else None,
            metric_states=self.metric_states if return_metrics else None,
            summary_states=self.summary_states if return_summaries else None,
            schedule_counts=(
                schedule_counts(self.opt_state)
                if is_logged and self.updates is not None
                else None
            ),
        )


#
# What is measured in a step: losses, metrics and summaries
#


Tree = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auxiliaries(config_base.UpdateFromRootCfg):
    """The losses, metrics and summaries of a step; the trainer's unless given.

    Attributes:
      losses: Losses by name; nested mappings are allowed.
      metrics: Metrics by name.
      summaries: Summaries by name.
    """

    losses: Tree = config_base.ROOT_CFG_REF.train_losses
    metrics: Tree = config_base.ROOT_CFG_REF.train_metrics
    summaries: Tree = config_base.ROOT_CFG_REF.train_summaries

    def __post_init__(self) -> None:
        for name in ("losses", "metrics", "summaries"):
            value = getattr(self, name)
            if isinstance(value, dict):
                object.__setattr__(self, name, freeze(value))

    def update_context(self, context: Context) -> Context:
        """Compute the states from what is in the context (inside `jit`).

        Losses that the forward pass computed already are kept.
        """
        if context.loss_states is None:
            _, loss_states = kd_losses.compute_losses(self.losses, context)
            context = context.replace(loss_states=loss_states)
        return context.replace(
            metric_states=_get_states("metric_states", self.metrics, context),
            summary_states=_get_states("summary_states", self.summaries, context),
        )


def _get_states(kind: str, tree: Tree, context: Context) -> dict[str, Any]:
    """State of each metric, in the structure of the tree."""

    def get_state(path: Any, metric: metrics.Metric) -> Any:
        with naming(lambda: f"In {_name_of(kind, path)}: "):
            if kind == "metric_states":
                metric.check_padding(context)
            return metric.get_state_from_context(context)

    return jax.tree_util.tree_map_with_path(
        get_state,
        _as_dict(tree),
        is_leaf=lambda node: isinstance(node, metrics.Metric),
    )


def _as_dict(tree: Any) -> Any:
    """Mappings to plain dicts, so that states are the same tree whatever was given."""
    if isinstance(tree, Mapping):
        return {key: _as_dict(value) for key, value in tree.items()}
    return tree


#
# States
#


class AuxiliariesState(flax.struct.PyTreeNode, items.StandardCheckpointItem):
    """States of losses, metrics and summaries, mergeable over batches.

    Can be saved and restored by a checkpointer, all but the error and the counts.

    Attributes:
      loss_states: States of the losses by name, or `None`.
      metric_states: States of the metrics.
      summary_states: States of the summaries.
      error: What checkify found, if it is on.
      schedule_counts: Of a train step: the counts at which the optimizer evaluated its
        schedules.
    """

    loss_states: Tree | None = dataclasses.field(default_factory=dict)
    metric_states: Tree | None = dataclasses.field(default_factory=dict)
    summary_states: Tree | None = dataclasses.field(default_factory=dict)
    error: Any = None
    schedule_counts: Any = None

    def __kd_ocp_save_args__(self) -> Any:
        return items.StandardCheckpointItem.__kd_ocp_save_args__(
            self.replace(error=None, schedule_counts=None)
        )

    def merge(self, other: AuxiliariesState | None) -> AuxiliariesState:
        """Both together, state by state; also written `self | other`."""
        if other is None:
            return self
        return AuxiliariesState(
            error=_merge_errors(self.error, other.error),
            **{
                name: _merge_states(name, getattr(self, name), getattr(other, name))
                for name in _KINDS
            },
        )

    def __or__(self, other: AuxiliariesState | None) -> AuxiliariesState:
        return self.merge(other)

    def __ror__(self, other: None) -> AuxiliariesState:
        return self

    def finalize(self) -> AuxiliariesState:
        """Every state brought to the host."""
        with jax.transfer_guard("allow"):
            return self.replace(
                **{
                    name: _map_states(name, lambda s: s.finalize(), getattr(self, name))
                    for name in _KINDS
                }
            )

    def compute(self, *, flatten: bool = True) -> AuxiliariesOutput:
        """Return the values: numpy arrays, numbers, texts.

        Args:
          flatten: Whether to name values by path (`"metrics/acc/top1"`) instead of
            keeping the nested mappings.

        Returns:
          The values; with any loss, also their sum under `total`.
        """
        values = self._values
        if flatten:
            values = {
                name: kontext.flatten_with_path(
                    tree, prefix=_KINDS[name], separator="/"
                )
                for name, tree in values.items()
            }
        return AuxiliariesOutput(
            loss_values=values["loss_states"],
            metric_values=values["metric_states"],
            summary_values=values["summary_states"],
        )

    @functools.cached_property
    def _values(self) -> dict[str, Any]:
        """Computed once: the writer and the choice of the best checkpoint ask for it."""
        values = {
            name: _compute_states(name, states)
            for name, states in vars(self.finalize()).items()
            if name in _KINDS
        }
        if values["loss_states"]:
            total = sum(jax.tree.leaves(values["loss_states"]))
            values["loss_states"] = {**values["loss_states"], "total": total}
        return values


_KINDS = {
    "loss_states": "losses",
    "metric_states": "metrics",
    "summary_states": "summaries",
}


class AuxiliariesOutput(flax.struct.PyTreeNode):
    """Values of losses, metrics and summaries.

    Attributes:
      loss_values: Values of the losses.
      metric_values: Values of the metrics.
      summary_values: Values of the summaries.
    """

    loss_values: Tree = dataclasses.field(default_factory=dict)
    metric_values: Tree = dataclasses.field(default_factory=dict)
    summary_values: Tree = dataclasses.field(default_factory=dict)

    def compute(self, *, flatten: bool = True) -> AuxiliariesOutput:
        """Return the values as they are, where `AuxiliariesState` would compute them."""
        del flatten
        return self


#
# Over trees of states
#


def _map_states(kind: str, function: Any, *trees: Tree | None) -> Any:
    """Apply `function` to each state; errors name the metric."""
    if trees[0] is None:
        return None

    def apply(path: Any, *states: Any) -> Any:
        with naming(lambda: f"In {_name_of(kind, path)}: "):
            return function(*states)

    return jax.tree_util.tree_map_with_path(
        apply, *trees, is_leaf=metrics.State.isinstance
    )


def _merge_states(kind: str, mine: Tree | None, other: Tree | None) -> Tree | None:
    if not mine:
        return mine if other is None else other
    if not other:
        return mine
    return _map_states(kind, lambda a, b: a.merge(b), mine, other)


def _merge_errors(mine: Any, other: Any) -> Any:
    """Return the first error that is set."""
    if mine is None or other is None:
        return other if mine is None else mine
    return mine if mine.get() is not None else other


def _compute_states(kind: str, states: Tree | None) -> dict[str, Any]:
    def compute(path: Any, state: metrics.State) -> Any:
        with naming(lambda: f"compute() failed for {_name_of(kind, path)}: "):
            return _to_numpy(state.compute())

    with jax.transfer_guard("allow"):
        return jax.tree_util.tree_map_with_path(
            compute, dict(states or {}), is_leaf=metrics.State.isinstance
        )


def _name_of(kind: str, path: Any) -> str:
    return "/".join([_KINDS[kind], *(str(getattr(p, "key", p)) for p in path)])


def _to_numpy(value: Any) -> Any:
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, value
    )
