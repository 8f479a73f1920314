"""What is wrong with an evaluator, found by shapes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron.evals import batch_program
from kauldron.train.problems import Problem, caught, forward_specs, of_metrics
from kauldron.utils.batch_mask import without_mask

if TYPE_CHECKING:
    from kauldron.evals.evaluator import Evaluator
    from kauldron.train import TrainState


def of_step(evaluator: Evaluator, state: TrainState) -> list[Problem]:
    """Each loss, metric and summary that cannot be measured, or what else fails.

    Args:
      evaluator: Its `step` is evaluated, as in an evaluation.
      state: A state, or its specs.
    """
    here = f"evals.{evaluator.name}"
    if evaluator.discard_opt:
        state = state.replace(opt_state=None)
    found: list[Problem] = []
    with caught(found, f"{here}.ds"):
        batch_program.batch_specs(evaluator)
    if found:
        return found

    def measure() -> None:
        batch = batch_program.batch_specs(evaluator)
        batch_program.abstract_states(evaluator, state, batch)

    with caught(found, here):
        evaluator.without_filler(measure)
    return (_of_each(evaluator, state) or found) if found else []


def _of_each(evaluator: Evaluator, state: TrainState) -> list[Problem]:
    """All that cannot be measured, where the step stops at the first."""
    batch = without_mask(batch_program.batch_specs(evaluator))
    try:
        context = forward_specs(
            state,
            batch,
            model=evaluator.model,
            rngs=evaluator.base_cfg.rng_streams.eval_rngs(0),
            is_training=False,
            method=evaluator.model_method,
        )
    except Exception:  # the model: the step has said so
        return []
    return [
        problem
        for field in ("losses", "metrics", "summaries")
        for problem in of_metrics(
            f"evals.{evaluator.name}.{field}", getattr(evaluator.aux, field), context
        )
    ]
