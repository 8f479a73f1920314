"""States of checkpoints that a run left, and evaluating them again."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from etils import epath

from kauldron import ckpts, writers
from kauldron.errors import did_you_mean, error_prefix
from kauldron.train import trainer_fields
from kauldron.train.run import workdir_files
from kauldron.train.state import AuxiliariesOutput, AuxiliariesState

if TYPE_CHECKING:
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer

Step = int | Literal["best", "last"]


def load(
    trainer: Trainer, *, step: Step = "last", optimizer: bool = True
) -> TrainState:
    """Return the state of a checkpoint of the run; see `Trainer.get_state`."""
    number = find_step(trainer.checkpointer, step)
    path = trainer.workdir / workdir_files.ELEMENT_SPEC_FILENAME
    # With it, the training data need not be there.
    spec = workdir_files.read_element_spec(trainer.workdir) if path.exists() else None
    specs = trainer_fields.state_specs(
        trainer,
        element_spec=spec,
        with_optimizer=optimizer and trainer.optimizer is not None,
    )
    return trainer.checkpointer.restore(specs, step=number)


def find_step(checkpointer: ckpts.BaseCheckpointer, step: Step) -> int:
    """Return the number of a step that is saved.

    Raises:
      FileNotFoundError: There is no such checkpoint.
      ValueError: `"best"`, where nothing says what is best, or another word.
    """
    if not isinstance(checkpointer, ckpts.Checkpointer):
        raise ValueError(
            "This experiment saves no checkpoints: set "
            "`cfg.checkpointer = kd.ckpts.Checkpointer(...)`."
        )
    if isinstance(step, int):
        return checkpointer.find_step(step)
    if step == "last":
        return checkpointer.find_step(-1)
    if step != "best":
        raise ValueError(
            f"step must be a number, 'best' or 'last', got {step!r}."
            + did_you_mean(step, ["best", "last"])
        )
    newest = checkpointer.find_step(-1)
    if checkpointer.best_metric_path is None:
        raise ValueError(
            "Which checkpoint is best is not known, as the run did not set "
            f"`cfg.checkpointer.best_metric_path`. The last is of step {newest}."
        )
    best = checkpointer.best_step
    if best is None:
        raise ValueError(
            f"No checkpoint in {checkpointer.folder} has the metric "
            f"{checkpointer.best_metric_path!r}. The last is of step {newest}."
        )
    return best


def evaluate(
    trainer: Trainer,
    *,
    names: str | Sequence[str] | None,
    step: Step,
    state: TrainState | None,
    write_to: epath.PathLike | None,
) -> dict[str, AuxiliariesOutput]:
    """Evaluate a state; see `Trainer.test`."""
    if not trainer.evals:
        raise ValueError("This experiment has no evaluators: set `cfg.evals`.")
    chosen = trainer_fields.select_evaluators(
        trainer, names if isinstance(names, str) else list(names or trainer.evals)
    )
    if state is None:
        needs_opt_state = any(e.needs_opt_state for e in chosen.values())
        state = load(trainer, step=step, optimizer=needs_opt_state)
    number = int(state.step)
    results = {}
    for name, evaluator in chosen.items():
        writer = _writer(name, write_to)
        with tempfile.TemporaryDirectory() as temporary, contextlib.closing(writer):
            # What is not a value, such as the checkpoints of a readout.
            folder = epath.Path(temporary if write_to is None else write_to)
            with error_prefix(f"Evaluator {name} failed at step {number}: "):
                apart = evaluator.apart_from_run(writer, folder)
                result = apart.evaluate(state, number)
        if isinstance(result, AuxiliariesState):
            result = result.compute()
        results[name] = AuxiliariesOutput() if result is None else result
    return results


def _writer(name: str, folder: epath.PathLike | None) -> writers.WriterBase:
    if folder is None:
        return writers.NoopWriter(workdir=epath.Path())
    writer = writers.KDMetricWriter(workdir=epath.Path(folder))
    return writers.with_collection(writer, name)


def numbers(output: AuxiliariesOutput) -> Mapping[str, float]:
    """Return losses and metrics that are numbers, by logged name."""
    values = {**output.loss_values, **output.metric_values}
    return {
        name: float(value)
        for name, value in values.items()
        if getattr(value, "size", 1) == 1 and not isinstance(value, str | Mapping)
    }
