"""Everything that would go wrong in a first step, found by shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron import konfig, train
from kauldron.cli.problems import Problems
from kauldron.optim import step_update
from kauldron.testing import assert_step_specs


def find_step_problems(
    cfg: konfig.ConfigDict, trainer: train.Trainer, *, left_out: Collection[str] = ()
) -> list[str]:
    """Problems of a train step and of each evaluation, without computing anything.

    Args:
      cfg: The config.
      trainer: What was built of it.
      left_out: Paths of what could not be built.
    """
    problems = Problems(cfg)
    for name in ("train_ds", "model", "optimizer"):
        is_missing = getattr(trainer, name) is None and name not in left_out
        if is_missing and not trainer.setup.eval_only:
            problems.messages.append(f"cfg.{name}: it is not set.")
    if problems.messages or trainer.train_ds is None or trainer.model is None:
        return problems.messages
    context = None
    with problems.at("train_ds"):
        batch = train.trainer_specs.batch_specs(trainer)
    if not problems.messages:
        with problems.at("model"):
            context = _context_specs(trainer, trainer.model, batch, is_training=True)
    if context is None:
        return problems.messages
    if trainer.optimizer is not None:
        with problems.at("optimizer"):
            _check_optimizer(trainer, context)
    for problem in train.problems.find(trainer):
        problems.add(problem.path, problem.message)
    for problem in train.problems.find_with_state(trainer, trainer.state_specs):
        problems.add(problem.path, problem.message)
    for field in ("train_losses", "train_metrics", "train_summaries"):
        _check_metrics(problems, field, getattr(trainer, field), context)
    for name, evaluator in trainer.evals.items():
        _check_evaluator(problems, trainer, name, evaluator)
    if not (problems.messages or left_out or trainer.setup.eval_only):
        with problems.at("trainstep"):
            assert_step_specs(trainer, evals=True)
    return problems.messages


def _context_specs(
    trainer: train.Trainer, model: Any, batch: Any, *, is_training: bool
) -> train.Context:
    """The context after a forward pass; in training, with gradients and updates."""
    state = jax.eval_shape(
        lambda: trainer.init_state(skip_transforms=True, skip_optimizer=True)
    )

    def run(state: Any, batch: Any) -> train.Context:
        streams = trainer.rng_streams
        context = train.forward(
            train.Context.from_state_and_batch(state=state, batch=batch),
            model=model,
            rngs=streams.train_rngs(0) if is_training else streams.eval_rngs(0),
            is_training=is_training,
        )
        if not is_training:
            return context
        return context.replace(
            grads=state.params, updates=state.params, loss_total=jnp.zeros(())
        )

    return jax.eval_shape(run, state, batch)


def _check_optimizer(trainer: train.Trainer, context: train.Context) -> None:
    opt_state = jax.eval_shape(trainer.optimizer.init, context.params)
    if not isinstance(trainer.trainstep, train.TrainStep):
        return
    if type(trainer.trainstep) is train.TrainStep:
        jax.eval_shape(
            lambda *args: step_update.update(
                trainer.optimizer,
                *args,
                value=jnp.zeros(()),
                grad=args[0],
                value_fn=lambda params: jnp.zeros(()),
            ),
            *(context.grads, opt_state, context.params),
        )


def _check_metrics(
    problems: Problems, path: str, metrics: Mapping[str, Any], context: train.Context
) -> None:
    for name, metric in metrics.items():
        inner = f"{path}.{name}"
        if isinstance(metric, Mapping):
            _check_metrics(problems, inner, metric, context)
            continue
        with problems.at(inner):
            jax.eval_shape(metric.get_state_from_context, context)


def _check_evaluator(
    problems: Problems, trainer: train.Trainer, name: str, evaluator: Any
) -> None:
    if not (hasattr(evaluator, "ds") and hasattr(evaluator, "aux")):
        return
    context = None
    with problems.at(f"evals.{name}"):
        specs = trainer.replace(train_ds=evaluator.ds, evals={})
        batch = train.trainer_specs.batch_specs(specs)
        context = _context_specs(trainer, evaluator.model, batch, is_training=False)
    if context is None:
        return
    for field in ("losses", "metrics", "summaries"):
        if trainer.setup.eval_only or not evaluator._is_inherited(field):
            metrics = getattr(evaluator.aux, field)
            _check_metrics(problems, f"evals.{name}.{field}", metrics, context)
