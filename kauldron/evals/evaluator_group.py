"""The evaluators of one process: their results, errors and progress."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import writers
from kauldron.evals.eval_progress import EvalProgress
from kauldron.train import preemption
from kauldron.train.auxiliaries import AuxiliariesState
from kauldron.utils import status
from kauldron.utils.error_context import error_prefix

if TYPE_CHECKING:
    from kauldron.evals.evaluator_base import EvaluatorBase
    from kauldron.train import TrainState


class EvaluatorGroup:
    """Runs evaluators; one that fails does not stop the others.

    Attributes:
      alive: The evaluators that are still to be run, by name.
      progress: What they have finished.
      step: The step that was evaluated last.
    """

    def __init__(self, evaluators: Mapping[str, EvaluatorBase], progress: EvalProgress):
        self.names = list(evaluators)
        self.alive = dict(evaluators)
        self.progress = progress
        self.step = -1
        self._results: dict[str, Any] = {n: AuxiliariesState() for n in evaluators}
        self._errors: list[Exception] = []
        self._has_started: set[str] = set()

    def evaluate(self, names: Iterable[str], state: TrainState, step: int) -> None:
        """Run some evaluators on a state; what they have finished is noted.

        Raises:
          StopRequested: The process was asked to stop.
        """
        self.step = step
        for name in names:
            evaluator = self.alive[name]
            try:
                with error_prefix(f"Evaluator {name} failed at step {step}: "):
                    self._drop_earlier_attempt(name, step)
                    self._results[name] = evaluator.evaluate(state, step)
                    evaluator.writer.flush()
            except preemption.StopRequested:
                raise
            except Exception as error:
                status.log_error("".join(traceback.format_exception(error)))
                self._errors.append(error)
                self.retire([name])
            else:
                self.progress.finish(name, step)

    def retire(self, names: Iterable[str]) -> None:
        """Do not run these any more."""
        for name in names:
            self.alive.pop(name, None)

    def finish(self) -> dict[str, Any]:
        """The results by name, or what went wrong."""
        if self._errors:
            raise ExceptionGroup("Evaluators failed", self._errors)
        return self._results

    def _drop_earlier_attempt(self, name: str, step: int) -> None:
        """Drop values of this step that a killed process wrote but did not note."""
        if name in self._has_started or not status.is_lead_host:
            return
        self._has_started.add(name)
        writer = self.alive[name].writer
        logged = writers.read_scalars(epath.Path(writer.workdir) / name)
        if all(line["step"] <= step for line in logged):
            writer.resume(step=step)
