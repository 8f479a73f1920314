"""Mistakes in a trainer, found before a run spends time on them.

`trainer.train()` refuses to start on an error and warns about the rest; `kauldron check`
lists all of them. Both call the same functions, so that they cannot disagree. To add a
check, write a generator of `Problem`s and list it in `CHECKS` (needs the trainer alone) or
`STATE_CHECKS` (needs shapes of the state too).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from kauldron import kontext, status
from kauldron.ckpts import Checkpointer, retention
from kauldron.data import DeviceRecords
from kauldron.data.dataset import TakeDataset
from kauldron.errors import did_you_mean, error_prefix, message_with_notes
from kauldron.optim.problems import explained_optimizer_init, find_problems
from kauldron.train import setup, trainer_fields
from kauldron.train.forward import forward
from kauldron.train.hooks import Hook
from kauldron.train.run.workdir_files import check_writable
from kauldron.train.state import Context
from kauldron.train.train_step import TrainStep

if TYPE_CHECKING:
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something wrong with a trainer.

    Attributes:
      path: Where in the config: `"optimizer"`, `"evals.test"`.
      message: What is wrong, and what to do about it.
      is_error: Whether training refuses to start; otherwise it warns.
      error: What was raised, if the problem was found by trying.
    """

    path: str
    message: str
    is_error: bool = True
    error: Exception | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, path: str, error: Exception) -> Problem:
        """Return what was raised as a problem."""
        return cls(path, message_with_notes(error), error=error)

    def __str__(self) -> str:
        return f"cfg.{self.path}: {self.message}"


@contextlib.contextmanager
def caught(found: list[Problem], path: str) -> Iterator[None]:
    """Add what is raised inside to `found`, as a problem of `cfg.<path>`."""
    try:
        yield
    except Exception as error:
        found.append(Problem.of(path, error))


def _tried(path: str, function: Callable[..., object], *args: Any) -> list[Problem]:
    """Call a function; return what it raises as a problem of `cfg.<path>`."""
    found: list[Problem] = []
    with caught(found, path):
        function(*args)
    return found


def find(trainer: Trainer) -> list[Problem]:
    """Return what is wrong with the trainer's fields."""
    return [problem for check in CHECKS for problem in check(trainer)]


def find_with_state(trainer: Trainer, state: TrainState) -> list[Problem]:
    """Return what is wrong with the trainer, given its state (or the state's specs)."""
    return [problem for check in STATE_CHECKS for problem in check(trainer, state)]


def find_all(trainer: Trainer) -> list[Problem]:
    """Return everything that would stop a run at its start, by shapes alone.

    Evaluators that run in a process of their own are looked at as well; if the trainer
    only evaluates, they are all that is looked at.
    """
    return list(dict.fromkeys(_find_all(trainer)))  # some are found twice


def _find_all(trainer: Trainer) -> list[Problem]:
    is_eval_only = trainer.setup.eval_only
    found = [] if is_eval_only else find(trainer)
    alone = _evaluators(trainer, in_training=False)
    for evaluator in alone.values():
        found += evaluator.find_problems()
    if trainer.model is None or trainer.train_ds is None:
        return found
    try:
        state = trainer.state_specs
    except Exception as error:
        return found + _explain_step(trainer, None, error)
    if not is_eval_only:
        found += find_with_state(trainer, state)
        if not any(problem.path.startswith("init_transform") for problem in found):
            found += _starting_state(trainer, state)
    if not _is_model_wrong(found):
        found += _of_evaluators(alone, state, found)
    return found


def report(problems: list[Problem]) -> None:
    """Warn about problems; raise if one of them is an error.

    Raises:
      Exception: What was raised when the only error was found.
      ValueError: All errors, a line each.
    """
    for problem in problems:
        if not problem.is_error:
            status.warn(str(problem), stacklevel=2)
    errors = [problem for problem in problems if problem.is_error]
    if len(errors) == 1 and errors[0].error is not None:
        with error_prefix(f"cfg.{errors[0].path}: "):
            raise errors[0].error
    if errors:
        raise ValueError("\n".join(map(str, errors))) from errors[0].error


#
# The fields of the trainer
#


def _missing_parts(trainer: Trainer) -> Iterator[Problem]:
    for name in ("train_ds", "model", "optimizer"):
        if getattr(trainer, name) is None:
            yield Problem(name, trainer_fields.not_set_message(name))


def _losses(trainer: Trainer) -> Iterator[Problem]:
    is_own_step = type(trainer.trainstep)._step is not TrainStep._step
    if not trainer.train_losses and not is_own_step:
        yield Problem(
            "train_losses",
            "`trainer.train_losses` is empty: training would change nothing. Set "
            "`cfg.train_losses = {'name': ...}`.",
        )


def _data(trainer: Trainer) -> list[Problem]:
    if trainer.train_ds is None:
        return []
    return _tried("train_ds", _check_can_be_read, trainer) or _tried(
        "num_train_steps", _check_ends, trainer
    )


def _check_can_be_read(trainer: Trainer) -> None:
    """Raise `ValueError` if there is nothing to train on, or not where it should be."""
    if batch_count(trainer.train_ds) == 0:
        raise ValueError(
            "`trainer.train_ds` has no batch to train on: it is empty, or has fewer "
            "records than `cfg.train_ds.batch_size`."
        )
    DeviceRecords.check(trainer.train_ds)


def _check_ends(trainer: Trainer) -> None:
    """Raise `ValueError` if nothing says when training stops."""
    given = (trainer.num_train_steps, trainer.stop_after_steps)
    if any(number is not None for number in given):
        return
    if is_endless(trainer.train_ds):
        raise ValueError(
            "`trainer.num_train_steps` is None and `trainer.train_ds` repeats forever: "
            "set `cfg.num_train_steps`, `cfg.stop_after_steps`, or "
            "`cfg.train_ds.num_epochs`."
        )
    if batch_count(trainer.train_ds) is None and jax.process_count() > 1:
        raise ValueError(
            "`trainer.num_train_steps` is None and the length of `trainer.train_ds` is "
            "unknown: with several processes, set `cfg.num_train_steps`."
        )


def _data_that_ends_early(trainer: Trainer) -> Iterator[Problem]:
    """Warn now of data that is too short, not when it ends."""
    steps = trainer.num_train_steps
    if steps is None or trainer.train_ds is None:
        return
    if trainer.stop_after_steps is not None:
        steps = min(steps, trainer.stop_after_steps)
    count = batch_count(trainer.train_ds)
    if count is not None and 0 < count < steps:
        yield Problem(
            "num_train_steps",
            f"`trainer.train_ds` ends after {count} batches, before step {steps}: "
            "training will stop there with an error. Set "
            "`cfg.train_ds.num_epochs=None` to repeat it, or a smaller "
            "`cfg.num_train_steps`.",
            is_error=False,
        )


def batch_count(dataset: Any) -> int | None:
    """Return the number of batches, or `None` if the data set cannot tell."""
    try:
        return len(dataset)
    except TypeError:
        return None


def is_endless(dataset: Any) -> bool:
    """Return whether a data set says that it repeats forever."""
    while not hasattr(dataset, "num_epochs"):
        if isinstance(dataset, TakeDataset) or not hasattr(dataset, "parent"):
            return False
        dataset = dataset.parent
    return dataset.num_epochs is None


def _workdir(trainer: Trainer) -> list[Problem]:
    is_usual = type(trainer.setup).run is setup.Setup.run
    if not is_usual or not setup.is_workdir_set(trainer):
        return []
    return _tried("workdir", check_writable, trainer.workdir)


def _writer(trainer: Trainer) -> list[Problem]:
    return _tried("writer", trainer.writer.check)


def _init_transform(trainer: Trainer) -> list[Problem]:
    if _is_resumed(trainer):
        return []
    return _tried("init_transform", trainer.init_transform.check)


def _is_resumed(trainer: Trainer) -> bool:
    """Return whether the run continues from a checkpoint."""
    return (
        setup.is_workdir_set(trainer) and trainer.checkpointer.latest_step is not None
    )


def _evaluators_before_init(trainer: Trainer) -> Iterator[Problem]:
    for evaluator in _evaluators(trainer, in_training=True).values():
        yield from evaluator.find_problems()


def _evaluators(trainer: Trainer, *, in_training: bool) -> dict[str, Any]:
    """Return the evaluators that run in the training process, or all others."""
    is_eval_only = trainer.setup.eval_only
    return {
        name: evaluator
        for name, evaluator in trainer.evals.items()
        if (evaluator.run.runs_in_training and not is_eval_only) == in_training
    }


def _best_metric(trainer: Trainer) -> Iterator[Problem]:
    checkpointer = trainer.checkpointer
    path = getattr(checkpointer, "best_metric_path", None)
    if path is None or not isinstance(checkpointer, Checkpointer):
        return
    where = "checkpointer.best_metric_path"
    if (message := _unknown_metric(path, _all_measured(trainer))) is not None:
        yield Problem(where, message)
    elif (message := retention.metric_never_there(checkpointer, trainer)) is not None:
        yield Problem(where, message, is_error=False)


def _hooks(trainer: Trainer) -> Iterator[Problem]:
    """Find metrics that hooks need, and that no evaluator measures during training."""
    measured = _all_measured(trainer)
    along = {
        name: values
        for name, values in measured.items()
        if name in trainer.evals
        and trainer.evals[name].run.runs_in_training
        and not trainer.evals[name].run.runs_at_end
    }
    for name, hook in trainer.hooks.items():
        for field, path in hook.needed_metrics.items():
            where = f"hooks.{name}.{field}"
            owner = retention.metric_owner(path)
            if owner in measured and owner not in along and owner != "train":
                run = type(trainer.evals[owner].run).__name__
                yield Problem(
                    where,
                    f"{path!r} is not known during training: the evaluator {owner!r} "
                    f"runs as {run}. Use `kd.evals.EveryNSteps(...)`.",
                )
            elif (message := _unknown_metric(path, along)) is not None:
                yield Problem(where, message)


def _methods_of_hooks(trainer: Trainer) -> Iterator[Problem]:
    """Find methods that look like those of a hook, and are never called."""
    events = [name for name in vars(Hook) if name.startswith("on_")]
    for name, hook in trainer.hooks.items():
        cls = type(hook)
        misspelt = [n for n in dir(cls) if n.startswith("on_") and n not in events]
        for method in misspelt:
            if hint := did_you_mean(method, events):
                message = f"{cls.__name__}.{method} is no event of training.{hint}"
                yield Problem(f"hooks.{name}", message, is_error=False)
        if cls.on_step is not Hook.on_step and cls.wants_values is Hook.wants_values:
            yield Problem(
                f"hooks.{name}",
                f"{cls.__name__}.on_step is never called: define `wants_values(step)`, "
                "which says after which steps it is.",
                is_error=False,
            )


def _unknown_metric(path: str, measured: Mapping[str, Any]) -> str | None:
    """Return a message if nothing measures the metric."""
    if _leads_to_metric(measured, kontext.Path.from_str(path).parts):
        return None
    known = retention.metric_paths({n: v for n, v in measured.items() if v})
    listed = f" There are: {', '.join(known)}." if known else ""
    return f"nothing measures {path!r}.{did_you_mean(path, known)}{listed}"


def _all_measured(trainer: Trainer) -> dict[str, Any]:
    """Return all metrics by collection; `None` where an evaluator does not tell."""
    measured: dict[str, Any] = {"train": _measured(trainer, "train_")}
    for name, evaluator in trainer.evals.items():
        aux = getattr(evaluator, "measured_aux", None)
        measured[name] = None if aux is None else _measured(aux, "")
    return measured


def _measured(owner: Any, prefix: str) -> dict[str, Any]:
    """Return what `best_metric_path` can name below an evaluator, or below `train`."""
    losses = getattr(owner, f"{prefix}losses")
    total = {"total": True} if losses else {}
    return {
        **getattr(owner, f"{prefix}metrics"),
        "losses": {**losses, **total},
    }


def _leads_to_metric(tree: Any, parts: Iterable[Any]) -> bool:
    """Return whether a path ends at a metric, or inside the value of one."""
    for part in parts:
        if not isinstance(tree, Mapping):
            return True
        if part not in tree:
            return False
        tree = tree[part]
    return not isinstance(tree, Mapping)


def check_batch_sizes(trainer: Trainer) -> Iterator[Problem]:
    """Find `batch_size=0`, with which each step would see a single record."""
    for path, dataset in _datasets(trainer):
        if getattr(dataset, "gives_single_records", False):
            yield Problem(
                path,
                "`batch_size=0` gives single records, and a step on each of them. Set "
                "it to the number of records of a batch, or to None if the records are "
                "batches already.",
            )


def _datasets(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """Yield the fields that may hold data, with their paths."""
    yield "train_ds", trainer.train_ds
    yield "eval_ds", trainer.eval_ds
    for name, evaluator in trainer.evals.items():
        for field in dataclasses.fields(evaluator):
            dataset = getattr(evaluator, field.name)
            if dataset is not trainer.eval_ds:
                yield f"evals.{name}.{field.name}", dataset


CHECKS: list[Callable[[Trainer], Iterable[Problem]]] = [
    _missing_parts,
    _losses,
    _data,
    _data_that_ends_early,
    check_batch_sizes,
    _workdir,
    _writer,
    _init_transform,
    _evaluators_before_init,
    _best_metric,
    _hooks,
    _methods_of_hooks,
]


#
# Shapes: of a train step, and of each evaluation
#


def _steps(trainer: Trainer, state: TrainState) -> list[Problem]:
    found = _train_step(trainer, state)
    if not _is_model_wrong(found):
        evaluators = _evaluators(trainer, in_training=True)
        found += _of_evaluators(evaluators, state, found)
    return found


def _is_model_wrong(found: list[Problem]) -> bool:
    """Return whether evaluations fail for the same reason as the step."""
    return any(problem.path in ("train_ds", "model") for problem in found)


def _train_step(trainer: Trainer, state: TrainState) -> list[Problem]:
    if type(trainer.trainstep).step is not TrainStep.step:
        return []  # it may do anything
    if trainer.optimizer is None:
        return _explain_step(trainer, state, None)
    try:
        _ = trainer.context_specs
    except Exception as error:
        return _explain_step(trainer, state, error)
    return []


def _explain_step(
    trainer: Trainer, state: TrainState | None, error: Exception | None
) -> list[Problem]:
    """Return all wrong parts of the trainer; the step itself stops at the first."""
    found: list[Problem] = []
    if type(trainer.trainstep)._step is TrainStep._step:
        found += _explain_parts(trainer, state)
    if error is not None and not found:
        is_optimizer = "`trainer.optimizer`" in str(error)
        found.append(Problem.of("optimizer" if is_optimizer else "trainstep", error))
    return found


def _explain_parts(trainer: Trainer, state: TrainState | None) -> list[Problem]:
    found: list[Problem] = []
    batch = context = None
    with caught(found, "train_ds"):
        batch = trainer_fields.batch_specs(trainer)
    if found:
        return found
    with caught(found, "model"):
        if state is None:
            state = jax.eval_shape(
                lambda: trainer.init_state(skip_transforms=True, skip_optimizer=True)
            )
        context = forward_specs(
            state,
            batch,
            model=trainer.model,
            rngs=trainer.rng_streams.train_rngs(0),
            is_training=True,
        )
    if context is None:
        return found
    if trainer.optimizer is not None:
        with (
            caught(found, "optimizer"),
            explained_optimizer_init(),
        ):
            jax.eval_shape(trainer.optimizer.init, context.params)
    context = context.replace(
        grads=context.params,
        updates=context.params,
        loss_total=jax.ShapeDtypeStruct((), jnp.float32),
    )
    for field in ("train_losses", "train_metrics", "train_summaries"):
        found += of_metrics(field, getattr(trainer, field), context)
    return found


def forward_specs(state: Any, batch: Any, **options: Any) -> Context:
    """Return the specs of the context after `forward(..., **options)`."""

    def run(state: Any, batch: Any) -> Context:
        context = Context.from_state_and_batch(state=state, batch=batch)
        return forward(context, **options)

    return jax.eval_shape(run, state, batch)


def of_metrics(
    path: str, metrics: Mapping[str, Any], context: Context
) -> list[Problem]:
    """Return a problem for each metric, loss or summary that cannot be measured."""
    found: list[Problem] = []
    for name, metric in metrics.items():
        inner = f"{path}.{name}"
        if isinstance(metric, Mapping):
            found += of_metrics(inner, metric, context)
            continue
        with caught(found, inner):
            jax.eval_shape(metric.get_state_from_context, context)
    return found


def _of_evaluators(
    evaluators: Mapping[str, Any], state: TrainState, found: list[Problem]
) -> list[Problem]:
    """Return problems of evaluators, without those that training has too."""
    told = {problem.path for problem in found}
    return [
        problem
        for name, evaluator in evaluators.items()
        for problem in evaluator.find_problems(state)
        if problem.path.replace(f"evals.{name}.", "train_", 1) not in told
    ]


def check_optimizer(trainer: Trainer, state: TrainState) -> Iterator[Problem]:
    """Find optimizers that would not do what was meant."""
    # One for each loss: `kd.contrib.train.multi_optimizer`.
    several = getattr(trainer.optimizer, "loss_to_optimizer", None)
    if several is None:
        is_plain = type(trainer.trainstep)._step is TrainStep._step
        if trainer.optimizer is None or not is_plain:
            return  # it may do with updates what it likes
        several = {"": trainer.optimizer}
    for name, optimizer in several.items():
        path = f"optimizer.{name}" if name else "optimizer"
        for problem in find_problems(optimizer, state.params):
            yield Problem(path, problem.message, is_error=problem.is_error)


def check_init_transform(trainer: Trainer, state: TrainState) -> Iterator[Problem]:
    """Find parts named by a loader that the model does not have."""
    for path, message in trainer.init_transform.find_problems(state):
        yield Problem(f"init_transform.{path}".rstrip("."), message)


STATE_CHECKS: list[Callable[[Trainer, TrainState], Iterable[Problem]]] = [
    _steps,
    check_optimizer,
    check_init_transform,
]


def _starting_state(trainer: Trainer, state: TrainState) -> list[Problem]:
    """What the state begins with: a run finds out by loading it."""
    if _is_resumed(trainer):
        return _tried("workdir", trainer.checkpointer.check_fits, state)
    return _tried("init_transform", trainer.init_transform.check, state)
