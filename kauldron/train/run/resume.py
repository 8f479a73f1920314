"""How a run begins: from the start, or where an earlier start left off."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from kauldron import ckpts, status
from kauldron.data import model_inputs
from kauldron.data.iters import (
    NonCheckpointableIterator,
    PyGrainIterator,
    as_iterator,
    wrap_like,
)
from kauldron.train import problems
from kauldron.train.auxiliaries import AuxiliariesOutput, AuxiliariesState
from kauldron.train.run import chrono as chrono_lib
from kauldron.train.run import workdir_files
from kauldron.train.state import CheckpointState

if TYPE_CHECKING:
    from kauldron.train.run.feed import Feeder
    from kauldron.train.run.loop import DeferredLog
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
      state: The state, after `step` updates.
      step: Number of the next update.
      chrono: The timer, with the time of earlier starts.
      ds_iter: The data, at the batch of that update.
      is_resumed: Whether this continues an earlier start.
      evals_pending: Whether the earlier start left before its evaluations of this step.
      is_complete: Whether no update is left to do.
    """

    state: TrainState
    step: int
    chrono: chrono_lib.Chrono
    ds_iter: Any
    is_resumed: bool = False
    evals_pending: bool = False
    is_complete: bool = False

    def position_item(self, feeder: Feeder) -> Any:
        """Return what to save of the data: the position after what the loop received."""
        return wrap_like(self.ds_iter, source=self.ds_iter.source, iterator=feeder)


def start_or_resume(trainer: Trainer, last_step: int | None) -> Start:
    """Restore the newest checkpoint, or initialise; write the files of the run."""
    chrono = chrono_lib.Chrono(
        name="train",
        batch_size=getattr(trainer.train_ds, "batch_size", None),
        pause_names=[pause.value for pause in chrono_lib.Pause],
    )
    if status.is_lead_host:
        workdir_files.show_config_changes(trainer)
    ds_iter = as_iterator(trainer.train_ds)
    begin = _restore(trainer, chrono, ds_iter)
    if begin is None:
        state = trainer.init_state()
        begin = Start(state, int(state.step), chrono, ds_iter)
    problems.report(problems.find_with_state(trainer, begin.state))
    begin = dataclasses.replace(
        begin, is_complete=_is_complete(trainer, begin, last_step)
    )
    if begin.is_resumed or workdir_files.read_starts(trainer.workdir):
        _resume_writers(trainer, begin)
    is_changed = status.is_lead_host and _write_files(trainer, begin)
    if begin.step == workdir_files.first_step(trainer.workdir, default=begin.step):
        _describe_run(trainer, begin)
    elif is_changed:
        trainer.writer.write_config(trainer.raw_cfg)
        _export(trainer, begin)
    return begin


def _is_complete(trainer: Trainer, begin: Start, last_step: int | None) -> bool:
    if last_step is not None:
        is_evaluated = not begin.evals_pending
        return begin.step > last_step or (begin.step == last_step and is_evaluated)
    # Data of unknown length: an earlier start has seen its end.
    marker = workdir_files.read_train_complete(trainer.workdir) or {}
    return begin.is_resumed and marker.get("step") == begin.step


def can_read_ahead(ds_iter: Any) -> bool:
    """Return whether batches may be read ahead without losing the position."""
    return isinstance(ds_iter, PyGrainIterator | NonCheckpointableIterator)


def is_real(checkpointer: ckpts.BaseCheckpointer) -> bool:
    """Return whether it saves at all."""
    return not isinstance(checkpointer, ckpts.NoopCheckpointer)


def best_metrics(
    evaluated: dict[str, Any], log: DeferredLog, step: int
) -> dict[str, Any]:
    """Return values by collection, for a checkpointer that keeps the best."""
    values: dict[str, Any] = {}
    if log.last_values is not None and log.last_values[0] == step - 1:
        logged = log.last_values[1]
        values["train"] = _nested({**logged.metric_values, **logged.loss_values})
    for name, result in evaluated.items():
        if isinstance(result, AuxiliariesState):
            result = result.compute(flatten=False)
        if isinstance(result, AuxiliariesOutput):
            values[name] = {**result.metric_values, "losses": result.loss_values}
    return values


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return values by logged name (`metrics/acc`, `losses/l2`) as nested mappings."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.removeprefix("metrics/").split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return tree


def _restore(trainer: Trainer, chrono: chrono_lib.Chrono, ds_iter: Any) -> Start | None:
    """Where the newest checkpoint left off; `None` if there is none."""
    checkpointer = trainer.checkpointer
    if checkpointer.latest_step is None:
        return None
    found = checkpointer.restore_newest(
        CheckpointState(trainer.state_specs, chrono, ds_iter)
    )
    if found is None:
        return None
    restored, step = found
    state_step = int(restored.train_state.step)
    if state_step != step:
        raise ValueError(
            f"Checkpoint {step} in {trainer.workdir} holds the state of step "
            f"{state_step}: its folder was renamed, or it is damaged."
        )
    trainer.setup.log_status(f"Resuming at step {step}")
    return Start(
        state=restored.train_state,
        step=step,
        chrono=restored.timer,
        ds_iter=restored.ds_iter,
        is_resumed=True,
        evals_pending=bool(checkpointer.custom_metadata(step).get("evals_pending")),
    )


def _describe_run(trainer: Trainer, begin: Start) -> None:
    """Write what is written once, at the first step of the run."""
    if status.is_lead_host:
        trainer.writer.write_start(trainer=trainer, state=begin.state, step=begin.step)
    _export(trainer, begin)


def _export(trainer: Trainer, begin: Start) -> None:
    trainer.exporter.export(
        model=trainer.model,
        state=begin.state,
        element_spec=_global_spec(trainer),
        is_training=True,
    )


def _write_files(trainer: Trainer, begin: Start) -> bool:
    """Write what describes the run; return whether its config is a new one."""
    is_changed = workdir_files.write_config(trainer, step=begin.step)
    workdir_files.write_element_spec(trainer, _global_spec(trainer))
    workdir_files.write_run_info(trainer, step=begin.step)
    if not begin.is_complete:
        workdir_files.remove_train_complete(trainer.workdir)
    return is_changed


def _resume_writers(trainer: Trainer, begin: Start) -> None:
    """Drop the points of an earlier start that this one writes again."""
    trainer.writer.resume(step=begin.step)
    marker = workdir_files.read_train_complete(trainer.workdir) or {}
    for name, evaluator in trainer.evals.items():
        if not evaluator.run.runs_in_training:
            continue  # another process writes its values
        if evaluator.run.runs_at_end:
            is_done = name in marker.get("final_evals", ())
        else:
            is_done = begin.is_resumed and not begin.evals_pending
        evaluator.writer.resume(step=begin.step + is_done)


def _global_spec(trainer: Trainer) -> Any:
    return model_inputs.get_global_elem_spec(
        trainer.train_ds.element_spec, trainer.sharding.batch
    )


#
# At which step training stops
#


class DataEndedError(ValueError):
    """The training data has fewer batches than the steps that were asked for."""


def find_last_step(trainer: Trainer) -> int | None:
    """Return the number of updates after which training stops.

    Returns:
      The step, or `None` if it is known only when the data ends.
    """
    given = [
        number
        for number in (trainer.num_train_steps, trainer.stop_after_steps)
        if number is not None
    ]
    if trainer.num_train_steps is not None:
        return min(given)
    length = problems.batch_count(trainer.train_ds)
    if length is not None:
        return min([*given, _smallest_of_all_processes(length)])
    return given[0] if given else None


def _smallest_of_all_processes(number: int) -> int:
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.process_allgather(np.asarray(number)).min())
