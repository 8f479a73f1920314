"""Mistakes that would train silently, found at the start of a run.

`trainer.train()` refuses to start on an error and warns about the rest; `kauldron check`
lists all of them. To add a check, write a generator of `Problem`s and list it in `CHECKS`
(needs the trainer alone) or `STATE_CHECKS` (needs shapes of the state too).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kauldron.optim.mistakes import find_mistakes
from kauldron.train.train_step import TrainStep
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.train.train_state import TrainState
    from kauldron.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something wrong with a trainer.

    Attributes:
      path: Where in the config: `"optimizer"`, `"evals.test"`.
      message: What is wrong, and what to do about it.
      is_error: Whether training refuses to start; otherwise it warns.
    """

    path: str
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"cfg.{self.path}: {self.message}"


def check_batch_sizes(trainer: Trainer) -> Iterator[Problem]:
    """`batch_size=0` means no batches: each step would see a single record."""
    for path, dataset in _datasets(trainer):
        if getattr(dataset, "gives_single_records", False):
            yield Problem(
                path,
                "`batch_size=0` gives single records, and a step on each of them. Set "
                "it to the number of records of a batch, or to None if the records are "
                "batches already.",
            )


def _datasets(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """What may be data, in the trainer and in its evaluators, each with its path."""
    yield "train_ds", trainer.train_ds
    yield "eval_ds", trainer.eval_ds
    for name, evaluator in trainer.evals.items():
        for field in dataclasses.fields(evaluator):
            dataset = getattr(evaluator, field.name)
            if dataset is not trainer.eval_ds:
                yield f"evals.{name}.{field.name}", dataset


def check_optimizer(trainer: Trainer, state: TrainState) -> Iterator[Problem]:
    """Optimizers that would do something else than was meant."""
    # One for each loss: `kd.contrib.train.multi_optimizer`.
    several = getattr(trainer.optimizer, "loss_to_optimizer", None)
    if several is None:
        is_plain = type(trainer.trainstep)._step is TrainStep._step
        if trainer.optimizer is None or not is_plain:
            return  # it may do with updates what it likes
        several = {"": trainer.optimizer}
    for name, optimizer in several.items():
        path = f"optimizer.{name}" if name else "optimizer"
        for mistake in find_mistakes(optimizer, state.params):
            yield Problem(path, mistake.message, is_error=mistake.is_error)


def check_init_transform(trainer: Trainer, state: TrainState) -> Iterator[Problem]:
    """Loaders may name parts that the model does not have."""
    for path, message in trainer.init_transform.find_mistakes(state):
        yield Problem(f"init_transform.{path}".rstrip("."), message)


CHECKS: list[Callable[[Trainer], Iterator[Problem]]] = [
    check_batch_sizes,
]
STATE_CHECKS: list[Callable[[Trainer, TrainState], Iterator[Problem]]] = [
    check_optimizer,
    check_init_transform,
]


def find(trainer: Trainer) -> list[Problem]:
    """Return what is wrong with the trainer's fields."""
    return [problem for check in CHECKS for problem in check(trainer)]


def find_with_state(trainer: Trainer, state: TrainState) -> list[Problem]:
    """Return what is wrong with the trainer, given its state (or the state's specs)."""
    return [problem for check in STATE_CHECKS for problem in check(trainer, state)]


def report(problems: list[Problem]) -> None:
    """Warn about problems; raise if one of them is an error.

    Raises:
      ValueError: All errors, a line each.
    """
    for problem in problems:
        if not problem.is_error:
            status.warn(str(problem), stacklevel=2)
    errors = [str(problem) for problem in problems if problem.is_error]
    if errors:
        raise ValueError("\n".join(errors))
