"""Evaluate a model by training something small on top of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
from etils import epath

from kauldron import ckpts, konfig, kontext, train, writers
from kauldron.ckpts import structure
from kauldron.evals import EvaluatorBase
from kauldron.train.run import preemption
from kauldron.train.state import AuxiliariesOutput, AuxiliariesState

if TYPE_CHECKING:
    from kauldron.train import Trainer, TrainState


#
# When the readout has been trained enough
#


def default_stop_after_steps_schedule_fn(
    step: int, default_num_train_evaluator_steps: int
) -> int:
    """Return all steps, however long the model was trained.

    >>> default_stop_after_steps_schedule_fn(10, 500)
    500
    """
    del step
    return default_num_train_evaluator_steps


def linear_stop_after_steps_schedule_fn(
    step: int,
    default_num_train_evaluator_steps: int,
    ramp_up_for_num_pre_training_steps: int = 100_000,
) -> int:
    """Return few steps for an early model, and all of them after a ramp.

    Args:
      step: Step of the model.
      default_num_train_evaluator_steps: Steps of the readout's config.
      ramp_up_for_num_pre_training_steps: Step of the model from which on the readout
        gets all its steps.

    Returns:
      The number of steps, at least 1.

    Example:
      >>> linear_stop_after_steps_schedule_fn(50_000, 500)
      250
      >>> linear_stop_after_steps_schedule_fn(0, 500)
      1
    """
    share = min(step / ramp_up_for_num_pre_training_steps, 1)
    return max(int(default_num_train_evaluator_steps * share), 1)


#
# The evaluator
#


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
      readout_workdir: Where readouts are trained; by default in the workdir of the run,
        under `train_evals.<name>`.
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
    readout_workdir: epath.Path | None = None

    def apart_from_run(self, writer: writers.WriterBase, folder: epath.Path) -> Self:
        workdir = folder / f"train_evals.{self.name}"
        return self.replace(writer=writer, readout_workdir=workdir)

    def evaluate(self, state: TrainState, step: int) -> AuxiliariesOutput:
        self._assert_root_cfg_resolved()
        trainer = self.readout_trainer_for_step(state, step)
        try:
            readout_state = _train(trainer)
        finally:
            self._outer_weights.forget()
        values = {}
        for name, evaluator in self._inner_evaluators_at(step).items():
            values[name] = _metric_values(evaluator.evaluate(readout_state, step))
            evaluator.writer.flush()
        return AuxiliariesOutput(metric_values=values)

    @functools.cached_property
    def readout_trainer_base(self) -> Trainer:
        """The trainer of the readout, with the outer model in its place.

        Made once, so that its step is compiled once.
        """
        trainer = make_readout(
            self.readout_config,
            outer=self.base_cfg,
            path=self.submodule_to_swap_path,
            overrides=self.overrides or {},
            readout_inputs=self.readout_inputs,
        )
        return trainer.replace(
            workdir=self.readout_workdir
            or self.base_cfg.workdir / f"train_evals.{self.name}",
            init_transform=self._outer_weights,
        )

    @functools.cached_property
    def _outer_weights(self) -> OuterWeights:
        return OuterWeights(self.subparams_to_swap_path or self.submodule_to_swap_path)

    def readout_trainer_for_step(self, state: TrainState, step: int) -> Trainer:
        """Return the trainer of one evaluation. Train it before asking for the next one.

        Args:
          state: State of the outer trainer; the readout starts with its parameters.
          step: Step of the outer trainer.
        """
        readout = self.readout_trainer_base
        num_steps = readout.num_train_steps
        if num_steps is not None:
            num_steps = self.stop_after_steps_schedule_fn(step, num_steps)
        self._outer_weights.use(state)
        curves = writers.with_collection(self.writer, f"{self.name}.train.{step}")
        return readout.replace(
            workdir=readout.workdir / f"_{self.name}_{step}",
            stop_after_steps=num_steps,
            writer=_OtherRunWriter(writers=(curves,)),
            evals={},
        )

    def _inner_evaluators_at(self, step: int) -> dict[str, Any]:
        """Return the readout's evaluators; at first, drop the values they will rewrite."""
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
            for name, evaluator in self.readout_trainer_base.evals.items()
        }


def _train(trainer: Trainer) -> TrainState:
    """Train a readout, or continue it."""
    if trainer.checkpointer.latest_step is None:
        trainer.writer.resume(step=0)  # an interrupted attempt may have left values
    try:
        return trainer.train()[0]
    except (train.Preempted, KeyboardInterrupt):
        preemption.raise_if_stop_requested()  # the outer training saves and leaves
        raise


def _metric_values(result: Any) -> Mapping[str, Any]:
    if isinstance(result, AuxiliariesState):
        result = result.compute(flatten=False)
    return result.metric_values if isinstance(result, AuxiliariesOutput) else {}


#
# The trainer of the readout
#


_NOT_OF_THE_READOUT = ("writer", "profiler", "init_transform")


def make_readout(
    readout: konfig.ConfigDict | Trainer,
    *,
    outer: Trainer,
    path: str,
    overrides: Mapping[str, Any],
    readout_inputs: Any,
) -> Trainer:
    """Build the readout's trainer from its config, with the outer model at the path."""
    if not isinstance(readout, konfig.ConfigDict):
        return _with_outer_model(readout.replace(profiler=None), path, outer)
    # Through JSON, so that references to other parts of the outer config are values.
    cfg = konfig.ConfigDict.from_json(readout.to_json())
    for name in _NOT_OF_THE_READOUT:
        cfg[name] = None
    konfig.get_by_path(cfg, path)  # it must exist
    if readout_inputs is not None:
        cfg.model.readout_inputs = readout_inputs
    if outer.raw_cfg is None:
        return _with_outer_model(konfig.resolve(cfg), path, outer)
    model = konfig.ConfigDict.from_json(outer.raw_cfg.to_json()).model
    konfig.set_by_path(cfg, path, model)
    for below, value in overrides.items():
        konfig.set_by_path(cfg, f"{path}.{below}", value)
    return konfig.resolve(cfg)


def _with_outer_model(trainer: Trainer, path: str, outer: Trainer) -> Trainer:
    """Put the outer model itself into the readout when there is no config for it."""
    tree = {"model": trainer.model}
    kontext.get_by_path(tree, path)  # it must exist
    return trainer.replace(**kontext.replace_by_path(tree, path, outer.model))


@dataclasses.dataclass(frozen=True)
class OuterWeights(ckpts.InitTransform):
    """Puts the weights of the outer model into the state of the readout.

    The weights change with each evaluation, but compiled functions do not depend on
    them: the object stays the same.

    Attributes:
      path: Path of the outer model in the readout's trainer.
    """

    path: str
    _state: list[TrainState] = dataclasses.field(
        default_factory=list, init=False, compare=False, repr=False
    )

    def use(self, state: TrainState) -> None:
        """Use the weights of this state for the readouts that follow."""
        self._state[:] = [state]

    def forget(self) -> None:
        """Release the weights, to free their memory."""
        self._state.clear()

    def transform(self, state: Any) -> Any:
        (outer,) = self._state
        path = kontext.Path.from_str(self.path)[1:]
        inner = kontext.get_by_path(state.params, path) if path else state.params
        _check_same_shapes(inner, outer.params, self.path)
        state = state.replace(params=_put(state.params, path, outer.params))
        collections = dict(state.collections or {})
        for name, value in (outer.collections or {}).items():
            if name in collections:
                collections[name] = _put(collections[name], path, value)
        return state.replace(collections=collections)


def _put(tree: Any, path: kontext.Path, value: Any) -> Any:
    """Put a copy of the value at a path of the tree: training frees what it is given."""
    value = jax.tree.map(jnp.copy, value)
    return kontext.replace_by_path(tree, path, value) if path else value


def _check_same_shapes(inner: Any, outer: Any, path: str) -> None:
    if different := structure.differences(inner, outer):
        raise ValueError(
            f"The parameters at {path!r} of the readout are not those of the outer "
            "model." + structure.listing("From the readout to the model", different)
        )


#
# Curves
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OtherRunWriter(writers.MultiWriter):
    """Keeps workdir and collection of its writers, whatever the trainer says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "writers", tuple(self.writers))

    def update_from_root_cfg(self, root_cfg: Any) -> Self:
        del root_cfg
        return self
