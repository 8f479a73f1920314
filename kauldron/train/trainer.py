"""`Trainer`: the root object of an experiment, and what a user calls on it."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
from etils import epath

from kauldron import ckpts, config_base, konfig, writers
from kauldron import sharding as kd_sharding
from kauldron.train import display, trainer_fields
from kauldron.train.hooks import Hook
from kauldron.train.rng_streams import RngStreams
from kauldron.train.run import loop, saved_states
from kauldron.train.run.profiler import NoopProfiler, Profiler
from kauldron.train.setup import ModelExporter, NoopExporter, Setup
from kauldron.train.train_step import TrainStep

if TYPE_CHECKING:
    import flax.linen as nn
    import optax

    from kauldron import data, evals
    from kauldron.train.state import (
        AuxiliariesOutput,
        AuxiliariesState,
        Context,
        TrainState,
    )


class Trainer(config_base.BaseConfig, konfig.WithRef):
    """An experiment: data, model, losses, optimizer, evaluations, and how to run it.

    Usually built by `konfig.resolve` from a config. It can never be mutated: `replace`
    gives a changed copy, and what its parts inherited (seed, workdir, losses, ...)
    follows.

    Attributes:
      seed: Seed of everything random: data, initialisation, dropout.
      workdir: Folder of the run.
      train_ds: Training data.
      eval_ds: Data of the evaluators that have none of their own.
      model: The flax module.
      rng_streams: Random streams, added to the default ones.
      sharding: Where arrays live when there are several devices.
      num_train_steps: Number of updates; `None` to use the whole (finite) data.
      stop_after_steps: Stop earlier, without changing anything derived from
        `num_train_steps`.
      log_metrics_every: Steps between two writes of metrics; `None` or 0 for never.
      log_summaries_every: Steps between two writes of summaries.
      train_losses: Losses by name; their sum is minimised. Also given as `losses=`, or
        as `train_loss=` for a single one.
      train_metrics: Metrics by name.
      train_summaries: Summaries by name.
      writer: Where values go.
      profiler: When to record a trace of the devices.
      checkify_error_categories: Run-time checks to make in every step (slow).
      schedules: Schedules by name, to be shared by reference and logged.
      optimizer: The optax transformation.
      num_microbatches: Gradient accumulation: in how many parts, one after the other, a
        batch is computed. More parts take less memory.
      checkpointer: When and how to save; `None` for never.
      init_transform: Changes the initial state, for example by loading weights.
      exporter: Writes the model in a form that needs only jax to run.
      trainstep: What one step does.
      evals: Evaluators by name.
      hooks: What to do at events of the loop, by name: `kd.train.EarlyStopping`, or
        a `kd.train.Hook` of your own.
      aux: Free values, referred to as `cfg.ref.aux.x`.
      setup: Options of the run that are not about the model.
      xm_job: Parameters of the launcher; never resolved.
      raw_cfg: The config that this trainer was resolved from.
      on_nonfinite: What to do when a loss is NaN or infinite.
      steps_per_dispatch: How many steps to run in one compiled call; `"auto"` estimates
        what pays. On a single CPU device, where compiled loops are slow, `"auto"` calls
        several short steps in a row instead.
    """

    __konfig_resolve_exclude_fields__ = ("xm_job",)
    __root_cfg_fields_to_recurse__ = ()

    seed: int = 0
    workdir: epath.Path = epath.Path()
    train_ds: data.Pipeline = None  # type: ignore[assignment]
    eval_ds: data.Pipeline | None = None
    model: nn.Module = None  # type: ignore[assignment]
    rng_streams: RngStreams = dataclasses.field(default_factory=RngStreams)
    sharding: kd_sharding.ShardingStrategy = dataclasses.field(
        default_factory=lambda: kd_sharding.ShardingStrategy()
    )
    num_train_steps: int | None = None
    stop_after_steps: int | None = None
    log_metrics_every: int | None = 100
    log_summaries_every: int | None = 1000
    train_losses: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_summaries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    writer: writers.WriterBase = dataclasses.field(
        default_factory=lambda: writers.KDMetricWriter()
    )
    profiler: Profiler | NoopProfiler = dataclasses.field(default_factory=Profiler)
    checkify_error_categories: frozenset[Any] = frozenset()
    schedules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: optax.GradientTransformation = None  # type: ignore[assignment]
    num_microbatches: int = 1
    checkpointer: ckpts.BaseCheckpointer = dataclasses.field(
        default_factory=lambda: ckpts.NoopCheckpointer()
    )
    init_transform: ckpts.InitTransform = dataclasses.field(
        default_factory=lambda: ckpts.NoopTransform()
    )
    exporter: ModelExporter = dataclasses.field(default_factory=NoopExporter)
    trainstep: TrainStep = dataclasses.field(default_factory=TrainStep, repr=False)
    evals: Mapping[str, evals.EvaluatorBase] = dataclasses.field(default_factory=dict)
    hooks: Mapping[str, Hook] = dataclasses.field(default_factory=dict)
    aux: Any = dataclasses.field(default_factory=dict)
    setup: Setup = dataclasses.field(default_factory=Setup)
    xm_job: Any = None
    raw_cfg: konfig.ConfigDict | None = dataclasses.field(default=None, repr=False)
    on_nonfinite: Literal["ignore", "warn", "raise"] = "warn"
    steps_per_dispatch: int | Literal["auto"] = "auto"

    # Other spellings of `train_losses`, for the constructor only.
    losses: dataclasses.InitVar[Mapping[str, Any] | None] = None
    train_loss: dataclasses.InitVar[Any] = None

    def __post_init__(self, losses: Any = None, train_loss: Any = None) -> None:
        super_post_init = getattr(super(), "__post_init__", None)
        if super_post_init is not None:
            super_post_init()
        trainer_fields.normalize(self, losses=losses, train_loss=train_loss)

    def __post_konfig_resolve__(self, cfg: konfig.ConfigDict) -> None:
        """Keep the config, so that it can be written beside the run."""
        object.__setattr__(self, "raw_cfg", copy.deepcopy(cfg))

    def __repr__(self) -> str:
        return display.trainer_text(self)

    def _repr_html_(self) -> str:
        return display.trainer_html(self)

    #
    # Whole jobs
    #

    def train(self) -> tuple[TrainState, AuxiliariesState | None]:
        """Train, evaluate, save, and resume where an earlier start left off.

        Returns:
          The final state, and what was measured in the last step (`None` if no step
          was left to do).
        """
        return loop.train(self)

    def continuous_eval(self, names: str | list[str]) -> dict[str, Any]:
        """Evaluate the checkpoints of this run as they appear, until it is complete.

        Args:
          names: Names of standalone evaluators, or of their job groups.

        Returns:
          From evaluator name to its last result.
        """
        evaluators = trainer_fields.select_evaluators(self, names)
        first = next(iter(evaluators.values()))
        return first.follow_checkpoints(self, evaluators)

    def test(
        self,
        names: str | Sequence[str] | None = None,
        *,
        step: saved_states.Step = "last",
        state: TrainState | None = None,
        write_to: epath.PathLike | None = None,
    ) -> dict[str, AuxiliariesOutput]:
        """Evaluate a checkpoint of this run again, or a given state.

        Evaluators of any strategy run, standalone or not. Nothing is written to the
        logs of the run.

        Args:
          names: Evaluators or job groups; all by default.
          step: Which checkpoint: a step, `"last"`, or `"best"` by the checkpointer's
            `best_metric_path`.
          state: Evaluate this one instead of a checkpoint.
          write_to: Folder to write values and summaries to; nothing is written without.

        Returns:
          From evaluator name to its values.
        """
        return saved_states.evaluate(
            self, names=names, step=step, state=state, write_to=write_to
        )

    @classmethod
    def eval_only(cls, **kwargs: Any) -> Trainer:
        """Return a trainer that evaluates an earlier run; meant for configs.

        Inside `konfig.imports()` this call is filled in with what is needed to find the
        earlier run's model and weights below `cfg.aux.workdir`.
        """
        setup = kwargs.get("setup")
        if not (isinstance(setup, Setup) and setup.eval_only):
            raise ValueError(
                "Trainer.eval_only() is meant for configs: call it inside "
                "`konfig.imports()` (or `konfig.mock_modules()`) and resolve the "
                "result. Its `setup` must be `kd.train.Setup(eval_only=True)`."
            )
        return cls(**kwargs)

    #
    # Parts of a job
    #

    def init_state(
        self,
        *,
        skip_transforms: bool = False,
        skip_optimizer: bool = False,
        element_spec: Any = None,
    ) -> TrainState:
        """Return the state before the first step, computed again at each call.

        Args:
          skip_transforms: Whether to leave out `init_transform`.
          skip_optimizer: Whether to leave `opt_state` as `None`.
          element_spec: Specs of a batch, instead of those of `train_ds`.

        Returns:
          The initial state.
        """
        trainer_fields.require(self, "model")
        if element_spec is None:
            trainer_fields.require(self, "train_ds")
            with jax.ensure_compile_time_eval():  # data is read, also under eval_shape
                element_spec = self.train_ds.element_spec
        return self.trainstep.init(
            element_spec,
            skip_transforms=skip_transforms,
            skip_optimizer=skip_optimizer,
        )

    def get_state(
        self, *, step: saved_states.Step = "last", optimizer: bool = True
    ) -> TrainState:
        """Return the state of a checkpoint of this run.

        Args:
          step: Which checkpoint: a step, `"last"`, or `"best"` by the checkpointer's
            `best_metric_path`.
          optimizer: Whether to read the optimizer state too.

        Returns:
          The state, on the devices.
        """
        return saved_states.load(self, step=step, optimizer=optimizer)

    @functools.cached_property
    def state_specs(self) -> TrainState:
        """Shapes, dtypes and shardings of the state, without computing it."""
        return trainer_fields.state_specs(self)

    @functools.cached_property
    def context_specs(self) -> Context:
        """Shapes and dtypes of everything keys can name after a train step."""
        return trainer_fields.context_specs(self)
