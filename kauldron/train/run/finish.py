"""How a run ends: final evaluations, everything on disk, the completion marker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import multihost_utils

from kauldron import ckpts, status
from kauldron.errors import error_prefix
from kauldron.train.run import preemption, workdir_files

if TYPE_CHECKING:
    from kauldron.train.run.resume import Start
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


@contextlib.contextmanager
def leaving_if_asked(stop_request: preemption.StopRequest, step: int) -> Iterator[None]:
    """Let a request stop final evaluations; the next start runs them again."""
    try:
        with preemption.watched(stop_request):
            yield
    except preemption.StopRequested:
        status.log(f"Stopped at step {step}, as asked; a new start continues.")
        stop_request.leave(step)


def finish(trainer: Trainer, state: TrainState, step: int) -> TrainState:
    """Run the `Final` evaluators and declare the run complete.

    Returns:
      The state, intact.
    """
    final = _final_evals(trainer)
    state = _evaluate(trainer, final, state, step)
    _declare_complete(trainer, step, final)
    return state


def finish_complete_run(trainer: Trainer, begin: Start) -> TrainState:
    """Run the `Final` evaluators that did not run yet; nothing is left to train."""
    status.log(
        f"Training is complete: {trainer.workdir} has reached step {begin.step}."
    )
    marker = workdir_files.read_train_complete(trainer.workdir) or {}
    final = _final_evals(trainer)
    missing = {n: e for n, e in final.items() if n not in marker.get("final_evals", ())}
    state = _evaluate(trainer, missing, begin.state, begin.step)
    _declare_complete(trainer, begin.step, final)
    return state


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
    if any(getattr(e.run, "free_memory", False) for e in evaluators.values()):
        jax.clear_caches()
    light_state, give_back = _offload_optimizer(evaluators, state)
    for name, evaluator in evaluators.items():
        with error_prefix(f"Evaluator {name} failed at step {step}: "):
            evaluator.evaluate(light_state, step)
    return state.replace(opt_state=give_back())


def _offload_optimizer(
    evaluators: Mapping[str, Any], state: TrainState
) -> tuple[TrainState, Callable[[], Any]]:
    """Free the devices of the optimizer state while no evaluator needs it.

    Returns:
      The state to evaluate, and a function that gives the optimizer state back.
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


def _declare_complete(trainer: Trainer, step: int, final: Mapping[str, Any]) -> None:
    trainer.checkpointer.wait_until_finished()
    trainer.writer.flush()
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("train_complete")
    if not status.is_lead_host:
        return
    checkpointer = trainer.checkpointer
    is_real = not isinstance(checkpointer, ckpts.NoopCheckpointer)
    if is_real and checkpointer.latest_step != step:
        status.log_warning(f"Step {step} could not be saved: the run is not complete.")
        return
    workdir_files.write_train_complete(trainer, step=step, final_evals=list(final))


#
# However a run ends, what it wrote is on disk when `train` is left
#


_LONGEST_WAIT_AFTER_ERROR_SECS = 60.0


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
        problem = _close_in_time(close)
        if problem:
            error.add_note(f"Closing {what} failed as well: {problem}")

    return exit_


def _close_in_time(close: Callable[[], None]) -> str | None:
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
    thread.join(_LONGEST_WAIT_AFTER_ERROR_SECS)
    if thread.is_alive():
        return f"it takes more than {_LONGEST_WAIT_AFTER_ERROR_SECS:.0f} s"
    return repr(errors[0]) if errors else None
