"""Everything that would go wrong in a first step, found by shapes alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron import konfig, path_grammar, train
from kauldron.cli.error_descriptions import message_with_notes
from kauldron.konfig.text_listing import describe_origin
from kauldron.testing import assert_step_specs


class Problems:
    """Collects what is raised, each under the path of the config it is about."""

    def __init__(self, cfg: konfig.ConfigDict):
        self._cfg = cfg
        self.messages: list[str] = []

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """What is raised inside is a problem of `cfg.<path>`."""
        try:
            yield
        except Exception as error:
            place = self._place(path)
            self.messages.append(f"cfg.{path}: {message_with_notes(error)}{place}")

    def _place(self, path: str) -> str:
        """Where it was set, and by which flags it was changed."""
        try:
            node = konfig.get_by_path(self._cfg, path)
        except KeyError:  # a default of the trainer
            return ""
        events = [*konfig.history(self._cfg, path)[-1:]]
        parts = path_grammar.parse(path)
        for name in node if isinstance(node, konfig.ConfigDict) else ():
            below = path_grammar.format_path((*parts, name))
            last = konfig.history(self._cfg, below)[-1:]
            events += [event for event in last if event.kind == "cli"]
        return "".join(f"\n  {describe_origin(event)}" for event in events)


def find_step_problems(cfg: konfig.ConfigDict, trainer: train.Trainer) -> list[str]:
    """Problems of a train step and of each evaluation, without computing anything."""
    problems = Problems(cfg)
    for name in ("train_ds", "model", "optimizer"):
        if getattr(trainer, name) is None and not trainer.setup.eval_only:
            problems.messages.append(f"cfg.{name}: it is not set.")
    if problems.messages:
        return problems.messages
    context = None
    with problems.at("train_ds"):
        batch = train.trainer_specs.batch_specs(trainer)
    if not problems.messages:
        with problems.at("model"):
            context = _context_specs(trainer, trainer.model, batch, is_training=True)
    if context is None:
        return problems.messages
    with problems.at("optimizer"):
        _check_optimizer(trainer, context)
    for field in ("train_losses", "train_metrics", "train_summaries"):
        _check_metrics(problems, field, getattr(trainer, field), context)
    for name, evaluator in trainer.evals.items():
        _check_evaluator(problems, trainer, name, evaluator)
    if not problems.messages:
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
            trainer.optimizer.update, context.grads, opt_state, context.params
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
        if not evaluator._is_inherited(field):
            metrics = getattr(evaluator.aux, field)
            _check_metrics(problems, f"evals.{name}.{field}", metrics, context)
