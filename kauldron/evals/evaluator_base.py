"""What every evaluator has: a name, a time to run, a writer."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, Self

from kauldron import writers
from kauldron.evals.run_strategies import RunStrategy
from kauldron.utils import config_util
from kauldron.utils.error_context import error_prefix

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState

DEFAULT_NAME = "eval"
_RESERVED = ("train", "checkpoints", "plugins", "evals", "array_dumps")


class EvaluatorBase(config_util.BaseConfig, config_util.UpdateFromRootCfg, abc.ABC):
    """Base of evaluators: implement `evaluate`.

    Attributes:
      run: When and where it runs.
      name: Name of its values; the key in `trainer.evals`.
      writer: Where values go; the trainer's, in a collection of the evaluator's name.
      base_cfg: The trainer.
      discard_opt: Whether to evaluate without the optimizer state, which saves memory.
    """

    run: RunStrategy
    name: str = DEFAULT_NAME
    writer: writers.WriterBase = config_util.ROOT_CFG_REF.writer
    base_cfg: Trainer = dataclasses.field(
        default=config_util.ROOT_CFG_REF,
        repr=False,  # type: ignore[assignment]
    )
    discard_opt: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        if isinstance(self.writer, writers.WriterBase):
            writer = writers.with_collection(self.writer, self.name)
            object.__setattr__(self, "writer", writer)

    def with_name(self, name: str) -> Self:
        """This evaluator under the key of `trainer.evals`."""
        if self.name == name:
            return self
        if self.name != DEFAULT_NAME:
            raise ValueError(
                f"The evaluator at `trainer.evals[{name!r}]` is called {self.name!r}: "
                "leave its name out, or use the same."
            )
        return self.replace(name=name)

    def maybe_eval(self, *, step: int, state: TrainState) -> Any:
        """Evaluate if it is time to; errors say which evaluator and step."""
        if not self.run.should_eval_in_train(step):
            return None
        with error_prefix(f"Evaluator {self.name} failed at step {step}: "):
            return self.evaluate(state, step)

    @abc.abstractmethod
    def evaluate(self, state: TrainState, step: int) -> Any:
        """Measure the state and write the values under `step`.

        Args:
          state: The state; must be neither donated nor changed.
          step: The number of updates it had.

        Returns:
          `AuxiliariesState`, `AuxiliariesOutput` or `None`.
        """


def _check_name(name: str) -> None:
    if not name.replace(".", "_").replace("-", "_").isidentifier():
        raise ValueError(
            f"{name!r} cannot be the name of an evaluator: use letters, digits, `_`, `-` "
            "and `.`, not beginning with a digit."
        )
    if name in _RESERVED or name.startswith("_eval_"):
        raise ValueError(
            f"{name!r} cannot be the name of an evaluator: the folder of that name in "
            "the workdir is used for something else."
        )
