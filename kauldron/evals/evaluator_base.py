"""What every evaluator has: a name, a time to run, a writer."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from etils import epath

from kauldron import ckpts, config_base, status, writers
from kauldron.errors import error_prefix
from kauldron.evals import standalone
from kauldron.evals.run_strategies import Once, RunStrategy, job_groups
from kauldron.train.problems import Problem, caught

if TYPE_CHECKING:
    from kauldron.train import Auxiliaries, Trainer, TrainState

DEFAULT_NAME = "eval"
_RESERVED = ("train", "checkpoints", "plugins", "evals", "array_dumps")


class EvaluatorBase(config_base.BaseConfig, config_base.UpdateFromRootCfg, abc.ABC):
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
    writer: writers.WriterBase = config_base.ROOT_CFG_REF.writer
    base_cfg: Trainer = dataclasses.field(
        default=config_base.ROOT_CFG_REF,  # type: ignore[assignment]
        repr=False,
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

    def update_from_root_cfg(self, root_cfg: Any) -> Self:
        _check_job_group(self, getattr(root_cfg, "evals", {}))
        return super().update_from_root_cfg(root_cfg)

    @property
    def needs_opt_state(self) -> bool:
        """Whether a checkpoint must be read with its optimizer state."""
        return not self.discard_opt or not isinstance(
            self._init_transform, ckpts.NoopTransform
        )

    @property
    def _init_transform(self) -> ckpts.InitTransform:
        """What changes the state before it is evaluated, in classes that have it."""
        return getattr(self, "init_transform", ckpts.NoopTransform())

    def find_problems(self, state: TrainState | None = None) -> list[Problem]:
        """Return what would make an evaluation fail, without computing anything.

        Args:
          state: A state, or its specs. `None` to look at what needs no shapes; that is
            not looked at again when there is a state.
        """
        found: list[Problem] = []
        if state is None and not self._is_inherited("writer"):
            with caught(found, f"evals.{self.name}.writer"):
                self.writer.check()
        with caught(found, f"evals.{self.name}.init_transform"):
            self._init_transform.check(state)
        return found

    @property
    def measured_aux(self) -> Auxiliaries | None:
        """What is measured; `None` if that is known only when it was evaluated."""
        return None

    def on_train_start(self, *, last_step: int | None) -> None:
        """Log what the user should know when training starts.

        Args:
          last_step: The last step of training, if it is known.
        """
        strategies = {name: e.run for name, e in self.base_cfg.evals.items()}
        for group, names in job_groups(strategies).items():
            if self.name == names[0]:
                status.log(
                    f"To evaluate {', '.join(names)}, start another process: kauldron "
                    f"eval --workdir={self.base_cfg.workdir} --eval_names={group}"
                )
        run = self.run
        if isinstance(run, Once) and last_step is not None and run.step > last_step:
            status.warn(
                f"Evaluator {self.name} will never run: it waits for step {run.step}, "
                f"but training ends at step {last_step}."
            )

    def compile_with(self, shared_jit: Any) -> None:
        """Compile together with evaluators of other trainers, where that is possible.

        Args:
          shared_jit: Compiles functions that are the same program once.
        """

    def maybe_eval(self, *, step: int, state: TrainState, is_last: bool = False) -> Any:
        """Evaluate if it is time to; errors say which evaluator and step.

        Args:
          step: The number of updates that the state had.
          state: The state.
          is_last: Whether training ends here.
        """
        is_due = is_last and self.run.includes_last_step
        if not is_due and not self.run.should_eval_in_train(step):
            return None
        with error_prefix(f"Evaluator {self.name} failed at step {step}: "):
            return self.evaluate(state, step)

    def apart_from_run(self, writer: writers.WriterBase, folder: epath.Path) -> Self:
        """Return a copy that leaves the workdir of the run alone, for `trainer.test`.

        Args:
          writer: Where values go.
          folder: Where all else goes that an evaluation writes.
        """
        del folder
        return self.replace(writer=writer)

    @abc.abstractmethod
    def evaluate(self, state: TrainState, step: int) -> Any:
        """Measure the state and write the values under `step`.

        Args:
          state: The state; must be neither donated nor changed.
          step: The number of updates it had.

        Returns:
          `AuxiliariesState`, `AuxiliariesOutput` or `None`.
        """

    def follow_checkpoints(
        self, trainer: Trainer, evaluators: Mapping[str, EvaluatorBase]
    ) -> dict[str, Any]:
        """Run a process of standalone evaluators, of which this is one."""
        return standalone.follow(trainer, evaluators)


def _check_name(name: str) -> None:
    is_identifier = name.replace(".", "_").replace("-", "_").isidentifier()
    if not is_identifier or not name.strip("."):
        raise ValueError(
            f"{name!r} cannot be the name of an evaluator: use letters, digits, `_`, `-` "
            "and `.`, not beginning with a digit."
        )
    if name in _RESERVED or name.startswith("_eval_"):
        raise ValueError(
            f"{name!r} cannot be the name of an evaluator: the folder of that name in "
            "the workdir is used for something else."
        )


def _check_job_group(evaluator: EvaluatorBase, others: Mapping[str, Any]) -> None:
    """Refuse a group that has the name of an evaluator that is not in it."""
    group = getattr(evaluator.run, "job_group", None)
    if group is None or group not in others:
        return
    namesake = getattr(others[group], "run", None)
    if getattr(namesake, "job_group", None) != group:
        raise ValueError(
            f"The job group {group!r} of evaluator {evaluator.name!r} is also the name "
            "of an evaluator outside of it: rename one of the two."
        )
