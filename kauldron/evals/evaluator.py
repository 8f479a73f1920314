"""The model over a data set: losses, metrics and summaries, merged."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from jax.experimental import checkify
from jax.sharding import NamedSharding

from kauldron import ckpts, config_base, kontext, status
from kauldron import sharding as kd_sharding
from kauldron.batch_mask import UnmaskableError, batch_mask_of, without_mask
from kauldron.data.iters import Iterator
from kauldron.errors import error_prefix
from kauldron.evals import batches
from kauldron.evals.batches import (
    BatchGroups,
    every_record,
    on_devices,
    select_batches,
    unpadded,
)
from kauldron.evals.evaluator_base import EvaluatorBase
from kauldron.evals.state_merging import BatchProgram, HostMerger, StateMerger
from kauldron.immutabledict import freeze
from kauldron.train.compat import ModelWithAux
from kauldron.train.forward import forward
from kauldron.train.problems import (
    Problem,
    batch_count,
    caught,
    forward_specs,
    of_metrics,
)
from kauldron.train.run import preemption, step_groups
from kauldron.train.run.terminal.progress import Progress
from kauldron.train.state import Auxiliaries, AuxiliariesState, Context

if TYPE_CHECKING:
    import flax.linen as nn

    from kauldron import data
    from kauldron.train.state import TrainState


_ONLY_IN_TRAINING = ("grads", "updates", "loss_total")
# A subclass that overrides one of these looks at every batch.
_PER_BATCH = ("step", "checked_step", "ds_iter")


class Evaluator(EvaluatorBase):
    """Runs the model over a data set and merges what is measured.

    Every record counts once: the last batch is filled up, and losses and metrics leave
    the filler out.

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

    __root_cfg_fields_to_recurse__ = ("summaries",)

    num_batches: int | None = None
    cache: bool = False
    ds: data.Pipeline = config_base.ROOT_CFG_REF.eval_ds
    losses: Mapping[str, Any] = config_base.ROOT_CFG_REF.train_losses
    metrics: Mapping[str, Any] = config_base.ROOT_CFG_REF.train_metrics
    summaries: Mapping[str, Any] = config_base.ROOT_CFG_REF.train_summaries
    model: nn.Module = config_base.ROOT_CFG_REF.model
    model_method: str | None = None
    init_transform: ckpts.InitTransform = ckpts.NoopTransform()
    checkify_error_categories: frozenset[Any] = (
        config_base.ROOT_CFG_REF.checkify_error_categories
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ds is None:
            raise ValueError(
                f"The evaluator {self.name!r} has no data: set "
                f"`cfg.evals.{self.name}.ds` or `cfg.eval_ds`."
            )
        if isinstance(self.num_batches, int) and self.num_batches < 1:
            raise ValueError(
                f"`cfg.evals.{self.name}.num_batches` must be at least 1, got "
                f"{self.num_batches}; `None` takes the whole data set."
            )
        for name in ("losses", "metrics", "summaries"):
            value = getattr(self, name)
            if isinstance(value, dict):
                object.__setattr__(self, name, freeze(value))

    def find_problems(self, state: TrainState | None = None) -> list[Problem]:
        found = super().find_problems(state)
        if state is None:
            with caught(found, f"evals.{self.name}"):
                _ = self._batches  # raises if the data has no end
        elif self._is_own_step():
            found += of_step(self, state)
        return found

    def _is_own_step(self) -> bool:
        """Return whether evaluating is `step` on each batch, with nothing overridden."""
        own = (getattr(Evaluator, name) for name in ("evaluate", "step"))
        return all(getattr(type(self), f.__name__) is f for f in own)

    @property
    def measured_aux(self) -> Auxiliaries | None:
        is_own = type(self)._step is Evaluator._step and self._is_own_step()
        return self.aux if is_own else None

    shared_jit: ClassVar[Any] = None  # compiles for several evaluators, if it is set

    def compile_with(self, shared_jit: Any) -> None:
        vars(self)["shared_jit"] = shared_jit

    #
    # One evaluation
    #

    def evaluate(self, state: TrainState, step: int) -> AuxiliariesState:
        self._assert_root_cfg_resolved()
        state = self.prepare_state(state)
        merged = self.without_filler(lambda: self._merge_batches(state))
        self.writer.write_step_metrics(
            step=step, aux=merged, schedules={}, log_summaries=True
        )
        return merged

    def prepare_state(self, state: TrainState) -> TrainState:
        """Return the state as `step` gets it."""
        state = self.init_transform.transform(state)
        return state.replace(opt_state=None) if self.discard_opt else state

    def without_filler(self, measure: Callable[[], Any]) -> Any:
        """Measure; if a metric would count filler, measure again on data without it."""
        try:
            return measure()
        except UnmaskableError as error:
            if self._memory.get("is_unpadded"):
                raise
            self._tell_that_nothing_is_padded(error)
            self._memory.clear()
            self._memory.update(records=unpadded(self.ds), is_unpadded=True)
            return measure()

    def _tell_that_nothing_is_padded(self, reason: Exception) -> None:
        if jax.device_count() == 1:
            status.log(
                f"Evaluator {self.name} takes the last batch as small as it is: {reason}"
            )
            return
        status.warn(
            f"Evaluator {self.name} leaves out the last records, which do not fill a "
            f"batch for {jax.device_count()} devices: {reason}"
        )

    def _merge_batches(self, state: TrainState) -> AuxiliariesState:
        if self.looks_at_each_batch():
            return self._not_empty(self._merge_one_by_one(state))
        return self._not_empty(self._merge_groups(state))

    def _merge_one_by_one(self, state: TrainState) -> AuxiliariesState | None:
        merger = StateMerger(self._memory.get("merge_plan"))
        with self.ds_iter as batches, self._progress() as progress:
            for index, batch in enumerate(batches):
                preemption.raise_if_stop_requested()
                merger.add(self.checked_step(index, state, batch))
                progress.update(index + 1)
        self._memory["merge_plan"] = merger.plan
        return merger.result()

    def _merge_groups(self, state: TrainState) -> AuxiliariesState | None:
        """One compiled call measures and merges; a thread reads ahead."""
        limit = None if self.cache else self.num_batches
        ds = self._batches if limit is None else self.records
        groups = self._memory.get("groups")
        if groups is None:
            total = batch_count(self._batches)
            groups = BatchGroups.of(self, state, ds, total=total, limit=limit)
            self._memory["groups"] = groups
        program: BatchProgram | None = self._memory.get("program")
        merged, on_host, done = None, HostMerger(), 0
        with groups.read(ds) as feeds, self._progress() as progress:
            for feed in itertools.chain.from_iterable(map(groups.of_equal_size, feeds)):
                preemption.raise_if_stop_requested()
                self._tell_about_other_shapes(feed.batch, feed.size)
                if program is None:
                    program = BatchProgram(self, state, feed, groups.transforms)
                merged, late = program.run(merged, index=done, state=state, feed=feed)
                on_host.add(late, feed.size)
                done += feed.size
                progress.update(done)
        self._memory["program"] = program
        if program is None or merged is None:
            return None
        return program.result(merged, on_host)

    def looks_at_each_batch(self) -> bool:
        """Return whether each batch must be a call of `checked_step`."""
        return bool(
            any(getattr(type(self), n) is not getattr(Evaluator, n) for n in _PER_BATCH)
            or self.checkify_error_categories
            or step_groups.obstacle(self.base_cfg)
            or not isinstance(self.base_cfg.sharding.aux, NamedSharding)
        )

    def _progress(self, start: int = 0) -> Progress:
        return Progress(
            self.name,
            step=start,
            last_step=batch_count(self._batches),
            activity="evaluating",
            is_compiled="program" in self._memory or "merge_plan" in self._memory,
        )

    def _not_empty(self, merged: AuxiliariesState | None) -> AuxiliariesState:
        if merged is None:
            raise ValueError(
                f"There was no batch to evaluate in the data of {self.name!r}: {self.ds!r}"
            )
        return merged

    def checked_step(
        self, index: int, state: TrainState, batch: Any
    ) -> AuxiliariesState:
        """`step`, raising what checkify found."""
        self._tell_about_other_shapes(batch)
        aux = self.step(step_nr=index, state=state, batch=batch)
        if aux.error is None:
            return aux
        with error_prefix(f"Batch {index}: "):
            aux.error.throw()
        return aux.replace(error=None)

    #
    # The data
    #

    @property
    def records(self) -> data.IterableDataset:
        """The data as it is evaluated: every record, in batches of one size."""
        if "records" not in self._memory:
            # An overridden `_step` may drop the mask: pad only if that is necessary.
            has_own_step = type(self)._step is not Evaluator._step
            is_unpadded = has_own_step and jax.device_count() == 1
            records = (unpadded if is_unpadded else every_record)(self.ds)
            self._memory.update(records=records, is_unpadded=is_unpadded)
        return self._memory["records"]

    @property
    def _batches(self) -> data.IterableDataset:
        if "batches" not in self._memory:
            self._memory["batches"] = select_batches(
                self.records,
                num_batches=self.num_batches,
                cache=self.cache,
                owner=self.name,
            )
        return self._memory["batches"]

    @property
    def ds_iter(self) -> Iterator:
        """The batches on the devices, from the first one."""
        return on_devices(self._batches, self.base_cfg.sharding.batch)

    def _tell_about_other_shapes(self, batch: Any, size: int = 1) -> None:
        """Log, once, that a smaller last batch compiles the step once more."""
        first_axis = 0 if size == 1 else 1
        shapes = tuple(leaf.shape[first_axis:] for leaf in jax.tree.leaves(batch))
        seen = self._memory.setdefault("shapes", {shapes})
        if shapes not in seen and len(seen) == 1:
            status.log(
                f"Evaluator {self.name}: a batch has other shapes than the first one, "
                "so the step is compiled once more."
            )
        seen.add(shapes)

    #
    # One batch
    #

    @functools.cached_property
    def aux(self) -> Auxiliaries:
        """What this evaluator measures."""
        return Auxiliaries(
            losses=self.losses,
            metrics=self._measurable("metrics"),
            summaries=self._measurable("summaries"),
        )

    def step(self, *, step_nr: Any, state: TrainState, batch: Any) -> AuxiliariesState:
        """Measure one batch; compiled.

        Args:
          step_nr: Index of the batch.
          state: The state to evaluate.
          batch: The batch, on the devices.

        Returns:
          The states of losses, metrics and summaries.
        """
        return self.compiled_step(step_nr=step_nr, state=state, batch=batch)

    @functools.cached_property
    def compiled_step(self) -> Any:
        """The compiled program that `step` calls; freed together with the evaluator."""
        return jax.jit(self._checked_and_sharded_step)

    def _checked_and_sharded_step(
        self, *, step_nr: Any, state: TrainState, batch: Any
    ) -> AuxiliariesState:
        sharding = self.base_cfg.sharding
        error = None
        self._memory["has_mask"] = batch_mask_of({"batch": batch}) is not None
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
        """One batch inside `jit`: the method to override.

        A padded batch has a mask among its entries: hand on what you do not change.
        """
        context = Context.from_state_and_batch(state=state, batch=batch)
        if self._memory.get("has_mask") and context.batch_mask is None:
            raise UnmaskableError(
                f"{type(self).__name__}._step drops the mask of the batch: hand on all "
                "entries that it does not change, as in `{**batch, ...}`."
            )
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

    @property
    def model_with_aux(self) -> ModelWithAux:
        """Deprecated: use `model` and `aux`."""
        return ModelWithAux.of(self)

    def _measurable(self, field: str) -> Mapping[str, Any]:
        """Return the field without inherited parts that exist in training only."""
        tree = getattr(self, field)
        if not self._is_inherited(field):
            return tree
        absent = (*_ONLY_IN_TRAINING, *(("opt_state",) if self.discard_opt else ()))
        kept, dropped = split_off(tree, absent)
        if dropped:
            status.log(
                f"Evaluator {self.name} leaves out the {field} {', '.join(dropped)} of "
                f"training: {', '.join(absent)} do not exist in evaluation."
            )
        return kept

    @functools.cached_property
    def _memory(self) -> dict[str, Any]:
        """What is remembered for later evaluations."""
        return {}


#
# Metrics of training that cannot be measured in evaluation
#


def split_off(
    tree: Mapping[str, Any], absent: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Return metrics without those whose keys begin with an absent part, and their names."""
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            kept[name], names = split_off(value, absent)
            dropped += [f"{name}/{inner}" for inner in names]
        elif not _first_parts(value).isdisjoint(absent):
            dropped.append(name)
        else:
            kept[name] = value
    return kept, dropped


def _first_parts(metric: Any) -> set[str]:
    """Return what the keys of a metric begin with."""
    keys = jax.tree.leaves(kontext.get_keypaths(metric))
    return {re.split(r"[.\[]", str(key))[0] for key in keys}


#
# What is wrong with an evaluator, found by shapes alone
#


def of_step(evaluator: Evaluator, state: TrainState) -> list[Problem]:
    """Return each loss, metric and summary that cannot be measured, or what else fails."""
    here = f"evals.{evaluator.name}"
    if evaluator.discard_opt:
        state = state.replace(opt_state=None)
    found: list[Problem] = []
    with caught(found, f"{here}.ds"):
        batches.batch_specs(evaluator)
    if found:
        return found
    with caught(found, here):
        evaluator.without_filler(
            lambda: batches.abstract_states(
                evaluator, state, batches.batch_specs(evaluator)
            )
        )
    return (_of_each(evaluator, state) or found) if found else []


def _of_each(evaluator: Evaluator, state: TrainState) -> list[Problem]:
    """Return everything that cannot be measured; the step stops at the first."""
    batch = without_mask(batches.batch_specs(evaluator))
    try:
        context = forward_specs(
            state,
            batch,
            model=evaluator.model,
            rngs=evaluator.base_cfg.rng_streams.eval_rngs(0),
            is_training=False,
            method=evaluator.model_method,
        )
    except Exception:  # the model fails, as the step has reported
        return []
    return [
        problem
        for field in ("losses", "metrics", "summaries")
        for problem in of_metrics(
            f"evals.{evaluator.name}.{field}", getattr(evaluator.aux, field), context
        )
    ]
