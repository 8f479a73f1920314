"""Evaluate a model by training something small on top of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from etils import epath

from kauldron import konfig, train
from kauldron.contrib.evals import readout_trainer
from kauldron.contrib.evals.stop_schedules import default_stop_after_steps_schedule_fn
from kauldron.evals import EvaluatorBase
from kauldron.train import preemption
from kauldron.train.auxiliaries import AuxiliariesOutput, AuxiliariesState

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState


class TrainEvaluator(EvaluatorBase):
    """Trains a readout on the model at each evaluation, and evaluates that.

    The readout is a trainer of its own, whose model contains the outer one, usually
    frozen. Its evaluators run once on the trained readout; their values are written
    under `<name>.<inner name>`, and its training curves under `<name>.train.<step>`.

    Attributes:
      readout_config: Config of the readout's trainer; not resolved with the outer one.
        A `kd.train.Trainer` itself works too.
      submodule_to_swap_path: Where in `readout_config` the outer model goes.
      subparams_to_swap_path: Where its parameters are in the readout; by default at the
        same path. The first part names the trainer's field.
      stop_after_steps_schedule_fn: From the outer step and `num_train_steps` of the
        readout to the number of steps to train.
      overrides: Values to set below the outer model's config, by path.
      readout_inputs: Replaces `model.readout_inputs` of the readout.
    """

    __konfig_resolve_exclude_fields__ = ("readout_config", "overrides")

    readout_config: konfig.ConfigDict | Trainer
    submodule_to_swap_path: str = "model.model"
    subparams_to_swap_path: str | None = None
    stop_after_steps_schedule_fn: Callable[[int, int], int] = (
        default_stop_after_steps_schedule_fn
    )
    overrides: Mapping[str, Any] | None = None
    readout_inputs: Any = None

    def evaluate(self, state: TrainState, step: int) -> AuxiliariesOutput:
        self._assert_root_cfg_resolved()
        readout, outer_weights = self._readout
        with outer_weights.of(state):
            readout_state = self._train(readout, step)
        values = {}
        for name, evaluator in self._inner_evaluators_at(step).items():
            values[name] = _metric_values(evaluator.evaluate(readout_state, step))
        return AuxiliariesOutput(metric_values=values)

    def _train(self, readout: Trainer, step: int) -> TrainState:
        """Train the readout of this step, or continue it."""
        num_steps = readout.num_train_steps
        if num_steps is not None:
            num_steps = self.stop_after_steps_schedule_fn(step, num_steps)
        writer = readout_trainer.curves_writer(
            self.writer, collection=f"{self.name}.train.{step}"
        )
        trainer = readout.replace(
            workdir=self._folder / f"_{self.name}_{step}",
            stop_after_steps=num_steps,
            writer=writer,
            evals={},
        )
        if trainer.checkpointer.latest_step is None:
            writer.resume(step=0)  # an interrupted attempt may have left values
        try:
            return trainer.train()[0]
        except (train.Preempted, KeyboardInterrupt):
            preemption.raise_if_stop_requested()  # the outer training saves and leaves
            raise

    @property
    def _folder(self) -> epath.Path:
        return self.base_cfg.workdir / f"train_evals.{self.name}"

    @functools.cached_property
    def _readout(self) -> tuple[Trainer, readout_trainer.OuterWeights]:
        """Made once, so that its step is compiled once."""
        trainer = readout_trainer.make(
            self.readout_config,
            outer=self.base_cfg,
            path=self.submodule_to_swap_path,
            overrides=self.overrides or {},
            readout_inputs=self.readout_inputs,
        )
        weights = readout_trainer.OuterWeights(
            self.subparams_to_swap_path or self.submodule_to_swap_path
        )
        return trainer.replace(workdir=self._folder, init_transform=weights), weights

    def _inner_evaluators_at(self, step: int) -> dict[str, Any]:
        """The readout's evaluators; what this start writes again is dropped."""
        is_first = "_inner_evaluators" not in vars(self)
        if is_first and not self.base_cfg.setup.eval_only:
            for evaluator in self._inner_evaluators.values():
                evaluator.writer.resume(step=step)
        return self._inner_evaluators

    @functools.cached_property
    def _inner_evaluators(self) -> dict[str, Any]:
        """Writing to the outer run, without losses; made once."""
        return {
            name: evaluator.replace(
                name=f"{self.name}.{name}",
                writer=self.writer,
                **({"losses": {}} if hasattr(evaluator, "losses") else {}),
            )
            for name, evaluator in self._readout[0].evals.items()
        }


def _metric_values(result: Any) -> Mapping[str, Any]:
    if isinstance(result, AuxiliariesState):
        result = result.compute(flatten=False)
    return result.metric_values if isinstance(result, AuxiliariesOutput) else {}
