"""The model over a data set: losses, metrics and summaries, merged."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import checkify

from kauldron import ckpts, kontext
from kauldron import sharding as kd_sharding
from kauldron.evals.evaluator_base import EvaluatorBase
from kauldron.evals.state_merging import StateMerger
from kauldron.konfig.immutabledict import freeze
from kauldron.train import preemption
from kauldron.train.auxiliaries import Auxiliaries, AuxiliariesState
from kauldron.train.context import Context
from kauldron.train.forward import forward
from kauldron.utils import config_util, status
from kauldron.utils.error_context import error_prefix

if TYPE_CHECKING:
    import flax.linen as nn

    from kauldron import data
    from kauldron.train.train_state import TrainState

_ONLY_IN_TRAINING = ("grads", "updates", "loss_total")


class Evaluator(EvaluatorBase):
    """Runs the model over a data set and merges what is measured.

    Attributes:
      num_batches: Number of batches; `None` for the whole data set.
      cache: Whether to keep the batches in host memory between evaluations.
      ds: The data; the trainer's `eval_ds` unless set.
      losses: The trainer's unless set; `{}` for none.
      metrics: The trainer's unless set.
      summaries: The trainer's unless set.
      model: The trainer's unless set.
      model_method: Method of the model instead of `__call__`.
      init_transform: Changes the state before it is evaluated.
      checkify_error_categories: Run-time checks; the trainer's unless set.
    """

    num_batches: int | None = None
    cache: bool = False
    ds: data.Pipeline = config_util.ROOT_CFG_REF.eval_ds
    losses: Mapping[str, Any] = config_util.ROOT_CFG_REF.train_losses
    metrics: Mapping[str, Any] = config_util.ROOT_CFG_REF.train_metrics
    summaries: Mapping[str, Any] = config_util.ROOT_CFG_REF.train_summaries
    model: nn.Module = config_util.ROOT_CFG_REF.model
    model_method: str | None = None
    init_transform: ckpts.InitTransform = ckpts.NoopTransform()
    checkify_error_categories: frozenset[Any] = (
        config_util.ROOT_CFG_REF.checkify_error_categories
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ds is None:
            raise ValueError(
                f"The evaluator {self.name!r} has no data: set "
                f"`cfg.evals.{self.name}.ds` or `cfg.eval_ds`."
            )
        for name in ("losses", "metrics", "summaries"):
            value = getattr(self, name)
            if isinstance(value, dict):
                object.__setattr__(self, name, freeze(value))

    def evaluate(self, state: TrainState, step: int) -> AuxiliariesState:
        self._assert_root_cfg_resolved()
        state = self.init_transform.transform(state)
        if self.discard_opt:
            state = state.replace(opt_state=None)
        merger = StateMerger()
        for index, batch in enumerate(self.ds_iter):
            preemption.raise_if_stop_requested()
            aux = self.step(step_nr=index, state=state, batch=batch)
            if aux.error is not None:
                with error_prefix(f"Batch {index}: "):
                    aux.error.throw()
                aux = aux.replace(error=None)
            merger.add(aux)
        merged = merger.result()
        if merged is None:
            raise ValueError(f"There was no batch to evaluate in {self.ds!r}.")
        self.writer.write_step_metrics(
            step=step, aux=merged, schedules={}, log_summaries=True
        )
        return merged

    @functools.cached_property
    def _cached_ds(self) -> Any:
        """The batches on the host, limited and cached as asked."""
        ds: Any = self.ds
        if self.num_batches is not None:
            return (
                ds.take(self.num_batches).cache()
                if self.cache
                else ds.take(self.num_batches)
            )
        if getattr(ds, "num_epochs", 1) is None:
            raise ValueError(
                "The data repeats forever: set `num_batches`, or `num_epochs=1` in its "
                "pipeline."
            )
        if self.cache:
            try:
                len(ds)
            except TypeError:
                raise ValueError(
                    "`cache=True` needs `num_batches`: the length of the data is unknown."
                ) from None
            return ds.cache()
        return ds

    @property
    def ds_iter(self) -> Iterator[Any]:
        """The batches on the devices, from the first one."""
        ds = self._cached_ds.prefetch(2).device_put(self.base_cfg.sharding.batch)
        return iter(ds)

    @functools.cached_property
    def aux(self) -> Auxiliaries:
        """What this evaluator measures."""
        return Auxiliaries(
            losses=self.losses,
            metrics=self._measurable("metrics"),
            summaries=self._measurable("summaries"),
        )

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(self, *, step_nr: Any, state: TrainState, batch: Any) -> AuxiliariesState:
        """Measure one batch.

        Args:
          step_nr: Index of the batch.
          state: The state to evaluate.
          batch: The batch, on the devices.

        Returns:
          The states of losses, metrics and summaries.
        """
        sharding = self.base_cfg.sharding
        error = None
        with sharding.set_global_mesh():
            if self.checkify_error_categories:
                checked = checkify.checkify(
                    self._step, errors=self.checkify_error_categories
                )
                error, aux = checked(step_nr, state, batch)
            else:
                aux = self._step(step_nr, state, batch)
        aux = kd_sharding.with_sharding_constraint(aux, sharding.aux)
        return aux.replace(error=error)

    def _step(self, step_nr: Any, state: TrainState, batch: Any) -> AuxiliariesState:
        """One batch inside `jit`: the method to override."""
        context = Context.from_state_and_batch(state=state, batch=batch)
        context = forward(
            context,
            model=self.model,
            rngs=self.base_cfg.rng_streams.eval_rngs(step_nr),
            is_training=False,
            method=self.model_method,
        )
        context = self.aux.update_context(context)
        return context.get_aux_state(
            return_losses=True, return_metrics=True, return_summaries=True
        )

    def _measurable(self, field: str) -> Mapping[str, Any]:
        """The field without what was inherited and exists in training only."""
        tree = getattr(self, field)
        if not self._is_inherited(field):
            return tree
        absent = (*_ONLY_IN_TRAINING, *(("opt_state",) if self.discard_opt else ()))
        kept, dropped = _split(tree, absent)
        if dropped:
            status.log(
                f"Evaluator {self.name} leaves out {', '.join(dropped)}: "
                f"{', '.join(absent)} exist only in training."
            )
        return kept


def _split(tree: Mapping[str, Any], absent: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The tree without what reads from `absent`, and the names of what was left out."""
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            kept[name], names = _split(value, absent)
            dropped += [f"{name}/{inner}" for inner in names]
        elif any(_root_of(key) in absent for key in _key_leaves(value)):
            dropped.append(name)
        else:
            kept[name] = value
    return kept, dropped


def _key_leaves(metric: Any) -> list[str]:
    keys = jax.tree.leaves(kontext.get_keypaths(metric))
    return [key for key in map(str, keys) if key]


def _root_of(key: str) -> str:
    return key.split(".")[0].split("[")[0]
