"""What steps measured: written one dispatch late, so that the device never waits."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron import status
from kauldron.losses import SoftmaxCrossEntropyWithIntLabels
from kauldron.optim.updates import ScheduleAt
from kauldron.train.state import AuxiliariesOutput, AuxiliariesState
from kauldron.writers.writer import FlushedTimer

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Pending:
    """What waits to be written."""

    step: int
    aux: AuxiliariesState
    log_summaries: bool


class DeferredLog:
    """Holds the last logged step until the next one is on its way."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer
        self.pending: Pending | None = None
        self._was_finite = True
        self.last_values: tuple[int, AuxiliariesOutput] | None = None

    def push(
        self,
        step: int,
        aux: AuxiliariesState,
        *,
        log_metrics: bool,
        log_summaries: bool,
    ) -> None:
        """Keep what was measured in `step`; its copy to the host starts now."""
        aux = aux.replace(
            metric_states=aux.metric_states if log_metrics else None,
            summary_states=aux.summary_states if log_summaries else None,
            error=None,
        )
        for leaf in jax.tree.leaves(aux):
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()
        self.pending = Pending(step, aux, log_summaries)

    def write(self, perf_stats: dict[str, float]) -> None:
        """Write what is held, with the speed until then."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        values = pending.aux.compute()
        self.last_values = (pending.step, values)
        self._trainer.writer.write_step_metrics(
            step=pending.step,
            aux=values,
            schedules=_schedules_at(
                self._trainer, pending.step, pending.aux.schedule_counts
            ),
            log_summaries=pending.log_summaries,
            timer=FlushedTimer(perf_stats),
            flush=False,
        )
        self._check_finite(pending.step, values)

    def _check_finite(self, step: int, values: AuxiliariesOutput) -> None:
        if self._trainer.on_nonfinite == "ignore":
            return
        bad = {
            key: float(value)
            for key, value in values.loss_values.items()
            if _is_number(value) and not math.isfinite(value)
        }
        if bad and self._trainer.on_nonfinite == "raise":
            listed = ", ".join(f"{key}={value}" for key, value in bad.items())
            raise FloatingPointError(
                f"Loss not finite at step {step}: {listed}."
                + _describe_wrong_labels(self._trainer)
            )
        if bad and self._was_finite:
            status.log_warning(
                f"Loss not finite at step {step}: {', '.join(bad)}. Training goes on; "
                "`cfg.on_nonfinite='raise'` stops it."
                + _describe_wrong_labels(self._trainer)
            )
        elif not bad and not self._was_finite:
            status.log_warning(f"All losses are finite again at step {step}.")
        self._was_finite = not bad


def _schedules_at(trainer: Trainer, step: int, counts: Any) -> Any:
    """Return the schedules, held at the optimizer's count where it is not the step."""
    with jax.transfer_guard("allow"):
        found = {int(count) for count in counts or ()}
    if len(found) != 1 or found == {step}:
        return trainer.schedules
    (count,) = found
    losses = jax.tree.leaves(trainer.train_losses)
    weights = [getattr(loss, "weight", None) for loss in losses]  # go by the step

    def hold(schedule: Any) -> Any:
        is_weight = any(schedule is weight for weight in weights)
        return schedule if is_weight else ScheduleAt(schedule, count)

    return jax.tree.map(hold, trainer.schedules, is_leaf=callable)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.result_type(value), np.number)


#
# Labels that are not among the classes, which make a loss NaN
#


_MOST_BATCHES = 10


def _describe_wrong_labels(trainer: Trainer) -> str:
    """Return a sentence about labels outside of the classes, if the data has any.

    Reads the first batches again, which is why it is done only for a run that went
    wrong.
    """
    losses = jax.tree_util.tree_leaves_with_path(trainer.train_losses)
    losses = [
        (jax.tree_util.keystr(path, simple=True, separator="/"), loss)
        for path, loss in losses
        if isinstance(loss, SoftmaxCrossEntropyWithIntLabels)
    ]
    if not losses:
        return ""
    batches = iter(trainer.train_ds)
    try:
        for batch in itertools.islice(batches, _MOST_BATCHES):
            context = trainer.context_specs.replace(batch=batch)
            for name, loss in losses:
                inputs = loss.resolve_inputs(context)
                size = inputs["logits"].shape[-1]
                wrong = _labels_outside(size, inputs["labels"], inputs.get("mask"))
                if wrong is not None:
                    return (
                        f" Labels of the loss {name!r} are wrong: {loss.labels!r} holds "
                        f"{wrong}, but {loss.logits!r} has the classes 0 to {size - 1}."
                    )
    except Exception as error:  # a failing run must not fail for this reason
        status.log_warning(f"The labels could not be checked: {error}")
    finally:
        getattr(batches, "close", lambda: None)()
    return ""


def _labels_outside(size: int, labels: Any, mask: Any) -> int | None:
    """Return a label that is not in `range(size)`, of those that count."""
    arrays = np.ndarray | jax.Array
    if not isinstance(labels, arrays) or not isinstance(mask, arrays | None):
        return None  # the model computes them
    labels = np.asarray(labels)
    is_wrong = (labels < 0) | (labels >= size)
    if mask is not None:
        mask = np.asarray(mask)
        is_wrong &= mask.reshape(mask.shape + (1,) * (labels.ndim - mask.ndim)) != 0
    return int(labels[is_wrong][0]) if is_wrong.any() else None


#
# Values by collection, as `best_metric_path` names them
#


def measured_values(
    evaluated: dict[str, Any], log: DeferredLog, step: int
) -> dict[str, Any]:
    """Return what evaluators measured, and the last update if it was logged."""
    values: dict[str, Any] = {}
    if log.last_values is not None and log.last_values[0] == step - 1:
        values["train"] = nested_values(log.last_values[1])
    for name, result in evaluated.items():
        if isinstance(result, AuxiliariesState):
            result = result.compute(flatten=False)
        if isinstance(result, AuxiliariesOutput):
            values[name] = {**result.metric_values, "losses": result.loss_values}
    return values


def nested_values(logged: AuxiliariesOutput) -> dict[str, Any]:
    """Return values by logged name (`metrics/acc`, `losses/l2`) as nested mappings."""
    tree: dict[str, Any] = {}
    for name, value in {**logged.metric_values, **logged.loss_values}.items():
        *parents, last = name.removeprefix("metrics/").split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return tree
