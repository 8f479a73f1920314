"""Evaluations in a process of their own: `trainer.continuous_eval(names)`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kauldron import ckpts
from kauldron.evals.checkpoint_keeping import KeptCheckpoints
from kauldron.evals.checkpoint_sources import CheckpointSource, EarlierRun, OwnRun
from kauldron.evals.eval_progress import EvalProgress, evaluation_lock, group_folder
from kauldron.evals.evaluator_group import EvaluatorGroup
from kauldron.evals.follower import Follower
from kauldron.evals.run_strategies import Standalone, StandaloneEveryCheckpoint
from kauldron.train import preemption, workdir_files
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.evals.evaluator_base import EvaluatorBase
    from kauldron.train import Trainer

EVAL_ONLY_CONFIG_FILENAME = "eval_only_config.json"


def follow(trainer: Trainer, evaluators: Mapping[str, EvaluatorBase]) -> dict[str, Any]:
    """Evaluate checkpoints as they appear, until training is complete.

    Args:
      trainer: Its run is followed; the earlier run, if the trainer only evaluates.
      evaluators: Standalone evaluators of the trainer, by name.

    Returns:
      From name to the result of the last evaluation; an empty `AuxiliariesState` if
      there was none.

    Raises:
      ExceptionGroup: Evaluators failed; the others have gone on to the end.
      TimeoutError: The training job gave no sign of life for `timeout_secs`.
      Preempted: The process was asked to stop.
    """
    check(trainer, evaluators)
    trainer.setup.run(trainer)
    names = list(evaluators)
    folder = group_folder(trainer, names)
    with contextlib.ExitStack() as stack:
        if status.is_lead_host:
            stack.enter_context(evaluation_lock(folder, names))
        stop = stack.enter_context(
            preemption.stop_on_signals("stopping after this batch")
        )
        stack.enter_context(preemption.watched(stop))
        for evaluator in evaluators.values():
            stack.callback(evaluator.writer.close)
        group = EvaluatorGroup(evaluators, EvalProgress(folder, names))
        try:
            if trainer.setup.eval_only:
                _write_eval_only_config(trainer)
                _evaluate_chosen_checkpoint(trainer, group)
            if group.alive:
                source = _make_source(trainer, group)
                Follower(source, group, trainer.setup, KeptCheckpoints(folder)).run()
        except preemption.StopRequested:
            status.log(f"Stopped evaluating {', '.join(names)}, as asked.")
            stop.leave(group.step)
        return group.finish()


def check(trainer: Trainer, evaluators: Mapping[str, EvaluatorBase]) -> None:
    """Raise `ValueError` if the evaluators cannot run on checkpoints."""
    if trainer.setup.eval_only:
        return
    for name, evaluator in evaluators.items():
        if not isinstance(evaluator.run, Standalone):
            others = [n for n, e in trainer.evals.items() if _is_standalone(e)]
            raise ValueError(
                f"Evaluator {name!r} does not run in a process of its own: its strategy "
                f"is {evaluator.run!r}. Standalone evaluators: "
                f"{', '.join(others) or 'none'}."
            )
    if isinstance(trainer.checkpointer, ckpts.NoopCheckpointer):
        raise ValueError(
            "This experiment saves no checkpoints, so there is nothing to evaluate: set "
            "`cfg.checkpointer = kd.ckpts.Checkpointer(...)`."
        )


def _is_standalone(evaluator: EvaluatorBase) -> bool:
    return isinstance(evaluator.run, Standalone)


def _make_source(trainer: Trainer, group: EvaluatorGroup) -> CheckpointSource:
    if trainer.setup.eval_only:
        return EarlierRun(trainer)
    needs_opt_state = any(e.needs_opt_state for e in group.alive.values())
    return OwnRun(trainer, with_optimizer=needs_opt_state)


#
# An earlier run
#


def _write_eval_only_config(trainer: Trainer) -> None:
    if trainer.raw_cfg is not None and status.is_lead_host:
        path = trainer.workdir / EVAL_ONLY_CONFIG_FILENAME
        workdir_files.write_atomically(path, trainer.raw_cfg.to_json(indent=2))


def _evaluate_chosen_checkpoint(trainer: Trainer, group: EvaluatorGroup) -> None:
    """Run the evaluators that do not follow the earlier run, on what the config loads."""
    names = [
        name
        for name, evaluator in group.alive.items()
        if not isinstance(evaluator.run, StandaloneEveryCheckpoint)
    ]
    if not names:
        return
    trainer.setup.log_status("Loading the state of the earlier run")
    state = trainer.init_state()
    group.evaluate(names, state, int(state.step))
    group.retire(names)
