"""How a run begins, from the start or where an earlier start left off, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
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
from kauldron.errors import error_prefix
from kauldron.train import hooks as hooks_lib
from kauldron.train import problems
from kauldron.train.run import chrono as chrono_lib
from kauldron.train.run import preemption, workdir_files
from kauldron.train.state import CheckpointState

if TYPE_CHECKING:
    from kauldron.train.run.feed import Feeder
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
      hooks: What hooks saved, if it continues an earlier start.
    """

    state: TrainState
    step: int
    chrono: chrono_lib.Chrono
    ds_iter: Any
    is_resumed: bool = False
    evals_pending: bool = False
    is_complete: bool = False
    hooks: Mapping[str, Any] | None = None

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
        workdir_files.set_aside_unreadable(trainer.workdir)
        workdir_files.show_config_changes(trainer)
    ds_iter = as_iterator(trainer.train_ds)
    begin = _restore(trainer, chrono, ds_iter)
    if begin is None:
        _refuse_to_start_over(trainer)
        state = trainer.init_state()
        begin = Start(state, int(state.step), chrono, ds_iter)
    problems.report(problems.find_with_state(trainer, begin.state))
    begin = dataclasses.replace(
        begin, is_complete=_is_complete(trainer, begin, last_step)
    )
    if begin.is_resumed or workdir_files.read_run_info(trainer.workdir)["starts"]:
        _resume_writers(trainer, begin)
    is_changed = status.is_lead_host and _write_files(trainer, begin)
    # If the config has changed, what it no longer keeps goes only after the first save.
    trainer.checkpointer.clean_up(delete_old=not is_changed)
    first_step = workdir_files.first_step(
        trainer.workdir, begin.step, is_resumed=begin.is_resumed
    )
    if begin.step == first_step:
        _describe_run(trainer, begin)
    elif is_changed:
        trainer.writer.write_config(trainer.raw_cfg)
        _export(trainer, begin)
    return begin


def _is_complete(trainer: Trainer, begin: Start, last_step: int | None) -> bool:
    is_evaluated = not begin.evals_pending
    if is_evaluated and hooks_lib.stopped_before(trainer, begin.hooks):
        return True
    if last_step is not None:
        is_done = begin.is_resumed and is_evaluated  # the last step's own work
        return begin.step > last_step or (begin.step == last_step and is_done)
    # Data of unknown length: an earlier start has seen its end.
    marker = workdir_files.read_train_complete(trainer.workdir) or {}
    return begin.is_resumed and marker.get("step") == begin.step


def can_read_ahead(ds_iter: Any) -> bool:
    """Return whether batches may be read ahead without losing the position."""
    return isinstance(ds_iter, PyGrainIterator | NonCheckpointableIterator)


def is_real(checkpointer: ckpts.BaseCheckpointer) -> bool:
    """Return whether the checkpointer saves at all."""
    return not isinstance(checkpointer, ckpts.NoopCheckpointer)


def _restore(trainer: Trainer, chrono: chrono_lib.Chrono, ds_iter: Any) -> Start | None:
    """Return where the newest checkpoint left off; `None` if there is none."""
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
    metadata = checkpointer.custom_metadata(step)
    return Start(
        state=restored.train_state,
        step=step,
        chrono=restored.timer,
        ds_iter=restored.ds_iter,
        is_resumed=True,
        evals_pending=bool(metadata.get("evals_pending")),
        hooks=metadata.get("hooks"),
    )


class CheckpointsGoneError(FileNotFoundError):
    """The run was saved before, but its checkpoints are no longer there."""


def _refuse_to_start_over(trainer: Trainer) -> None:
    """Raise if checkpoints are gone; if starting over is wanted, move the log aside."""
    saved = workdir_files.saved_step(trainer.workdir)
    if not any_process(_has_lost_checkpoints(trainer, saved)):
        return
    target = workdir_files.earlier_folder(trainer.workdir)
    where = getattr(trainer.checkpointer, "folder", "`cfg.checkpointer`, which is None")
    message = (
        f"The run in {trainer.workdir} had come to step {saved}, but there is no "
        f"checkpoint in {where}."
    )
    if not trainer.setup.start_over:
        raise CheckpointsGoneError(
            f"{message} Is a disk not mounted, or was the folder moved? To start over, "
            f"pass `--cfg.setup.start_over=True`: the log is then moved to {target}."
        )
    if status.is_lead_host:
        workdir_files.move_log(trainer, target)
        status.log_warning(f"{message} It starts over; its log is now in {target}.")


def _has_lost_checkpoints(trainer: Trainer, saved: int | None) -> bool:
    if saved is None:
        return False
    # Without a checkpointer, only a run that once had one has lost something.
    noted = workdir_files.read_run_info(trainer.workdir)["saved_step"]
    return is_real(trainer.checkpointer) or noted is not None


def any_process(flag: bool) -> bool:
    """Return whether the flag is set in any process of the run."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


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
    workdir_files.write_run_info(trainer, step=begin.step, is_resumed=begin.is_resumed)
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
    """Return after how many updates training stops; `None` if the data decides."""
    given = [
        number
        for number in (trainer.num_train_steps, trainer.stop_after_steps)
        if number is not None
    ]
    if trainer.num_train_steps is not None:
        return min(given)
    length = problems.batch_count(trainer.train_ds)
    if length is not None:
        return min([*given, smallest_of_all_processes(length)])
    return given[0] if given else None


def smallest_of_all_processes(number: int) -> int:
    """Return the smallest of the numbers that the processes of the run give."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.process_allgather(np.asarray(number)).min())


#
# The end: final evaluations, everything on disk, the completion marker
#


@contextlib.contextmanager
def leaving_if_asked(stop_request: preemption.StopRequest, step: int) -> Iterator[None]:
    """Let a request stop final evaluations; the next start runs them again."""
    try:
        with preemption.watched(stop_request):
            yield
    except preemption.StopRequested:
        status.log(f"Stopped at step {step}, as asked; a new start continues.")
        stop_request.leave(step)


def finish(
    trainer: Trainer,
    state: TrainState,
    step: int,
    hooks: hooks_lib.ActiveHooks,
    *,
    marker: Mapping[str, Any] | None = None,
) -> TrainState:
    """Run the `Final` evaluators, declare the run complete, and return the state.

    What the completion `marker` of an earlier start lists is done already.
    """
    final = _final_evals(trainer)
    done = (marker or {}).get("final_evals", ())
    missing = {name: final[name] for name in final if name not in done}
    state = _evaluate(trainer, missing, state, step)
    if marker is None:
        hooks.end(step, state)
    _declare_complete(trainer, step, final, hooks)
    return state


def finish_complete_run(trainer: Trainer, begin: Start) -> TrainState:
    """Run the `Final` evaluators that did not run yet; nothing is left to train."""
    status.log(
        f"Training is complete: {trainer.workdir} has reached step {begin.step}."
    )
    hooks = hooks_lib.ActiveHooks(trainer, begin.hooks)
    marker = workdir_files.read_train_complete(trainer.workdir)
    return finish(trainer, begin.state, begin.step, hooks, marker=marker)


def frees_memory(trainer: Trainer) -> bool:
    """Return whether an evaluator wants what training left on the devices released."""
    finals = _final_evals(trainer).values()
    return any(getattr(e.run, "free_memory", False) for e in finals)


def _final_evals(trainer: Trainer) -> dict[str, Any]:
    return {
        name: evaluator
        for name, evaluator in trainer.evals.items()
        if evaluator.run.runs_at_end
    }


def _evaluate(
    trainer: Trainer, evaluators: Mapping[str, Any], state: TrainState, step: int
) -> TrainState:
    if not evaluators:
        return state
    trainer.setup.log_status(f"Final evaluations: {', '.join(evaluators)}")
    light_state, give_back = _offload_optimizer(evaluators, state)
    for name, evaluator in evaluators.items():
        with error_prefix(f"Evaluator {name} failed at step {step}: "):
            evaluator.evaluate(light_state, step)
    return state.replace(opt_state=give_back())


def _offload_optimizer(
    evaluators: Mapping[str, Any], state: TrainState
) -> tuple[TrainState, Callable[[], Any]]:
    """Free the devices of the optimizer state while no evaluator needs it.

    Returns the state to evaluate, and a function that gives the optimizer state back.
    """
    frees = all(
        not e.needs_opt_state and getattr(e.run, "free_memory", False)
        for e in evaluators.values()
    )
    if not frees or not all(
        leaf.is_fully_addressable for leaf in jax.tree.leaves(state.opt_state)
    ):
        return state, lambda: state.opt_state
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state.opt_state)
    on_host = jax.device_get(state.opt_state)
    for leaf in jax.tree.leaves(state.opt_state):
        leaf.delete()
    light = state.replace(opt_state=None)
    return light, lambda: jax.device_put(on_host, shardings)


def _declare_complete(
    trainer: Trainer,
    step: int,
    final: Mapping[str, Any],
    hooks: hooks_lib.ActiveHooks,
) -> None:
    trainer.checkpointer.wait_until_finished()
    flush_writers(trainer)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("train_complete")
    if not status.is_lead_host:
        return
    checkpointer = trainer.checkpointer
    if is_real(checkpointer) and checkpointer.latest_step != step:
        newest = checkpointer.latest_step
        status.log_error(
            f"Step {step} could not be saved: the run is not complete, and its newest "
            f"checkpoint is {'none' if newest is None else f'of step {newest}'}."
        )
        return
    if is_real(checkpointer):
        workdir_files.note_saved(trainer.workdir, step)
    workdir_files.write_train_complete(
        trainer,
        step=step,
        final_evals=list(final),
        stopped_by=None if hooks.stop is None else hooks.stop.reason,
    )


#
# However a run ends, what it wrote is on disk when `train` is left
#


_LONGEST_WAIT_AFTER_ERROR_SECS = 60.0
# A save that needs a process that is gone never ends.
_LONGEST_WAIT_FOR_LOST_PROCESS_SECS = 3.0
_SIGNS_OF_A_LOST_PROCESS = (
    "Gloo",
    "NCCL",
    "by peer",
    "Socket closed",
    "heartbeat",
    "coordination service",
)


def is_process_lost(error: BaseException) -> bool:
    """Return whether an error says that another process of the run is gone."""
    is_alone = jax.process_count() == 1
    return not is_alone and any(s in str(error) for s in _SIGNS_OF_A_LOST_PROCESS)


def flush_writers(trainer: Trainer) -> None:
    """Bring to disk what is about to count as done, whoever wrote it."""
    trainer.writer.flush()
    for evaluator in trainer.evals.values():
        evaluator.writer.flush()


def close_at_the_end(stack: contextlib.ExitStack, trainer: Trainer) -> None:
    """Have the checkpointer and all writers closed when the stack is left."""
    stack.push(_closer("the checkpointer", trainer.checkpointer.close))
    stack.push(_closer("the writer", trainer.writer.close))
    for name, evaluator in trainer.evals.items():
        stack.push(_closer(f"the writer of {name}", evaluator.writer.close))


def _closer(what: str, close: Callable[[], None]) -> Callable[..., None]:
    """Return an exit callback that neither replaces nor delays a raised error."""

    def exit_(kind: Any, error: BaseException | None, traceback: Any) -> None:
        del kind, traceback
        if error is None:
            close()
            return
        limit = (
            _LONGEST_WAIT_FOR_LOST_PROCESS_SECS
            if is_process_lost(error)
            else _LONGEST_WAIT_AFTER_ERROR_SECS
        )
        problem = _close_in_time(close, limit)
        if problem:
            error.add_note(f"Closing {what} failed as well: {problem}")

    return exit_


def _close_in_time(close: Callable[[], None], limit: float) -> str | None:
    """Close, with a limit on the time; return what went wrong."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            close()
        except Exception as error:
            errors.append(error)

    # A daemon: what hangs must not keep the process alive either.
    thread = threading.Thread(target=run, name="kauldron-close", daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        return f"it takes more than {limit:.0f} s"
    return repr(errors[0]) if errors else None
