"""The train step of many trainers as one program: found by comparison, run under `vmap`.

Under `vmap`, convolutions whose kernels differ become grouped ones, which CPUs compute more
slowly than one after the other: there, the one program is run once for each trainer, for
as many trainers at the same time as there are processors.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.extend.core.primitives import conv_general_dilated_p

from kauldron import sharding as kd_sharding
from kauldron.data.engine.costs import num_usable_cores
from kauldron.train import trainer_fields
from kauldron.train.programs import jit_method
from kauldron.train.stacked import programs

if TYPE_CHECKING:
    from kauldron.data import DeviceRecords, DeviceTransforms
    from kauldron.train.state import AuxiliariesState, TrainState
    from kauldron.train.trainer import Trainer


#
# The step of one trainer
#


@dataclasses.dataclass(frozen=True, eq=False)
class TracedStep:
    """A train step as a program, traced with the real values of its config.

    Attributes:
      program: From the leaves of state and batch to those of `outputs`.
      outputs: Specs of the new state, what is measured, and whether the loss is finite.
      description: The program's skeleton and constants.
    """

    program: ClosedJaxpr
    outputs: Any
    description: programs.Description

    @classmethod
    def of(cls, trainer: Trainer, batch: Any = None) -> TracedStep:
        """Trace the step of a trainer for batches of these specs, or those of its data."""
        if batch is None:
            batch = trainer_fields.batch_specs(trainer)
        step = functools.partial(_measured_step, trainer.trainstep)
        trace = jax.make_jaxpr(step, return_shape=True)
        program, outputs = trace(plain_specs(trainer.state_specs), plain_specs(batch))
        return cls(program, outputs, programs.describe(program))

    def takes(self, batch: Any) -> bool:
        """Return whether the program was traced for batches of these specs."""
        specs = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(batch)]
        expected = self.program.in_avals[-len(specs) :]
        return specs == [(aval.shape, aval.dtype) for aval in expected]

    def is_same_program(self, other: TracedStep) -> bool:
        """Return whether two steps differ in constants alone."""
        has_same_names = _names(self.outputs) == _names(other.outputs)
        return has_same_names and self.description.is_same_program(other.description)

    def aux_of(self, leaves: Sequence[jax.Array]) -> AuxiliariesState:
        """Return what was measured; the states of metrics know their own options."""
        return jax.tree.unflatten(jax.tree.structure(self.outputs[1]), leaves)


def _measured_step(trainstep: Any, state: TrainState, batch: Any) -> Any:
    with trainstep.sharding.set_global_mesh():
        state, context = trainstep._checked_step(state, batch)
    aux = context.get_aux_state(
        return_losses=True, return_metrics=True, return_summaries=True
    )
    loss = context.loss_total
    is_finite = jnp.asarray(True) if loss is None else jnp.isfinite(loss).all()
    return state, aux, is_finite


def _names(tree: Any) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [jax.tree_util.keystr(path) for path, _ in leaves]


def plain_specs(specs: Any) -> Any:
    """Return specs without shardings: a stack lives on one device."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), specs)


def group_steps(steps: Sequence[TracedStep]) -> list[list[int]]:
    """Return the numbers of steps that are the same program, in order."""
    groups: list[list[int]] = []
    for number, step in enumerate(steps):
        for group in groups:
            if step.is_same_program(steps[group[0]]):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


#
# The step of a stack
#


class Lanes(NamedTuple):
    """What one run of the program carries from step to step, one lane for each training.

    Attributes:
      state: The train states, stacked on a new leading axis.
      died: At which step the loss was not finite; -1 if it never was.
    """

    state: TrainState
    died: jax.Array


class Stepped(NamedTuple):
    """What one run of the program gives.

    Attributes:
      lanes: After the updates.
      aux: The leaves of what was measured, for each lane; empty unless asked for.
      died: A copy of `lanes.died`, which the next dispatch does not consume.
    """

    lanes: Lanes
    aux: tuple[list[jax.Array], ...]
    died: jax.Array


def lanes_per_run(steps: Sequence[TracedStep]) -> int:
    """Return how many trainings a run of the program updates: all of them, or one."""
    is_cpu = jax.default_backend() == "cpu"
    if is_cpu and programs.has_operation(steps[0].program, conv_general_dilated_p):
        return 1
    return len(steps)


@dataclasses.dataclass(frozen=True, eq=False)
class StackedStep:
    """The step of several trainers, compiled as one program.

    Attributes:
      steps: The traced step of each trainer; the same program up to constants.
      stops: For each trainer, whether a loss that is not finite ends its training.
      sources: For each trainer, which of the batches it trains on.
      records: The records, if they live on the device: then batches are rows of them.
      transforms: What is left to do to the batches.
    """

    steps: Sequence[TracedStep]
    stops: np.ndarray
    sources: np.ndarray
    records: DeviceRecords | None = None
    transforms: DeviceTransforms | None = None

    @functools.cached_property
    def _compiled(self) -> dict[Any, Any]:
        return {}

    @functools.cached_property
    def constants(self) -> dict[programs.Path, np.ndarray]:
        """Constants that differ, stacked."""
        found = programs.differing([step.description for step in self.steps])
        return {path: np.stack(values) for path, values in found.items()}

    @functools.cached_property
    def runs(self) -> list[slice]:
        """Which trainers each run of the program updates."""
        width = lanes_per_run(self.steps)
        return [slice(n, n + width) for n in range(0, len(self.steps), width)]

    def update(
        self,
        lanes: Sequence[Lanes],
        batches: Any,
        is_active: np.ndarray,
        *,
        are_rows: bool,
        method: Literal["run", "run_measured", "run_group"],
    ) -> list[Stepped]:
        """Update all trainers with one of the methods below; return what each run gives.

        What is called from one thread is computed one after the other. So several runs
        are called from several threads, each from the next one in turn: on the CPU, most
        operations of a small model keep one core busy.

        Args:
          lanes: Of each run; their memory is taken.
          batches: As in `arguments`, like the next two.
          is_active: Which trainers to update.
          are_rows: Whether the batches are rows.
          method: The name of the method.
        """
        calls = [
            (own, *self.arguments(run, batches, is_active, are_rows=are_rows))
            for own, run in zip(lanes, self.runs, strict=True)
        ]
        function = getattr(self, method)
        if len(calls) == 1:
            return [function(*calls[0])]
        # Compiled here: threads have neither the settings of jax that are in force here,
        # nor a way to compile once for all of them.
        shapes = [leaf.shape for leaf in jax.tree.leaves(calls[0][1:3])]
        key = (method, *shapes)
        if key not in self._compiled:
            self._compiled[key] = function.lower(*calls[0]).compile()
        compiled = self._compiled[key]
        futures = [next(_threads()).submit(compiled, *call) for call in calls]
        return [future.result() for future in futures]

    def arguments(
        self, run: slice, batches: Any, is_active: np.ndarray, *, are_rows: bool
    ) -> Any:
        """Return the arguments of the methods below, after the lanes.

        Args:
          run: Which trainers to update.
          batches: A tuple of batches; or rows of records, for each source.
          is_active: Which of all trainers to update.
          are_rows: Whether the batches are rows.
        """
        columns = self.records.columns if self.records and are_rows else None
        if len(self.runs) > 1:
            [source] = self.sources[run]
            own = slice(source, source + 1)
            batches = batches[..., own, :] if are_rows else batches[own]
        constants = self._constants_by_run[run.start]
        return batches, columns, is_active[run], self.stops[run], constants

    @functools.cached_property
    def _constants_by_run(self) -> dict[int, list[jax.Array]]:
        values = self.constants.values()
        return {run.start: [jnp.asarray(v[run]) for v in values] for run in self.runs}

    @jit_method(donate_argnames="lanes")
    def run_measured(self, lanes: Lanes, *args: Any) -> Stepped:
        """Apply one update to the active lanes and return what was measured."""
        lanes, aux = self._update(lanes, *args)
        own = tuple(_lane(aux, number) for number in range(len(lanes.died)))
        return _stepped(lanes, own)

    @jit_method(donate_argnames="lanes")
    def run(self, lanes: Lanes, *args: Any) -> Stepped:
        """Apply one update to the active lanes, whose memory it takes."""
        lanes, _ = self._update(lanes, *args)
        return _stepped(lanes)

    @jit_method(donate_argnames="lanes")
    def run_group(self, lanes: Lanes, batches: Any, *args: Any) -> Stepped:
        """Apply as many updates as the batches have on their first axis."""

        def body(lanes: Lanes, batch: Any) -> tuple[Lanes, None]:
            return self._update(lanes, batch, *args)[0], None

        lanes, _ = jax.lax.scan(body, lanes, batches)
        return _stepped(lanes)

    def _update(
        self,
        lanes: Lanes,
        batches: Any,
        columns: Any,
        is_active: Any,
        stops: Any,
        constants: list[Any],
    ) -> tuple[Lanes, Any]:
        batch, axis = self._batch_of_lanes(batches, columns)
        state, died = lanes
        if len(died) == 1:  # an axis of one lane would slow down convolutions
            own = batch if axis is None else _lane(batch, 0)
            results = self._one_step(_lane(state, 0), own, _lane(constants, 0))
            new_state, aux, is_finite = jax.tree.map(lambda x: x[None], results)
        else:
            step = jax.vmap(self._one_step, in_axes=(0, axis, 0))
            new_state, aux, is_finite = step(state, batch, constants)
        runs = is_active & (died < 0)
        dies = runs & ~is_finite & stops
        is_kept = runs & ~dies

        def keep(new: jax.Array, old: jax.Array) -> jax.Array:
            mask = is_kept.reshape(-1, *[1] * (old.ndim - 1))
            return jnp.where(mask, new.astype(old.dtype), old)

        died = jnp.where(dies, state.step.astype(died.dtype), died)
        return Lanes(jax.tree.map(keep, new_state, state), died), aux

    def _one_step(self, state: Any, batch: Any, constants: list[Any]) -> Any:
        first = self.steps[0]
        changed = dict(zip(self.constants, constants, strict=True))
        leaves = jax.tree.leaves((state, batch))
        *results, is_finite = programs.evaluate(first.program, changed, *leaves)
        structure = jax.tree.structure(first.outputs[0])
        count = structure.num_leaves
        new_state = jax.tree.unflatten(structure, results[:count])
        return new_state, results[count:], is_finite

    def _batch_of_lanes(self, batches: Any, columns: Any) -> tuple[Any, int | None]:
        """Return the batch that all lanes share, or theirs stacked, and its axis."""
        is_shared = len(batches) == 1
        if columns is not None:
            assert self.records is not None
            gather = functools.partial(self.records.gather, columns)
            if is_shared:
                return gather(batches[0]), None
            return jax.vmap(gather)(self._by_lane(batches)), 0
        if self.transforms is not None:
            batches = [self.transforms.apply(batch) for batch in batches]
        if is_shared:
            return batches[0], None
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
        return jax.tree.map(self._by_lane, stacked), 0

    def _by_lane(self, by_source: jax.Array) -> jax.Array:
        is_same = np.array_equal(self.sources, np.arange(len(by_source)))
        return by_source if is_same else by_source[self.sources]


@functools.cache
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Return executors of one thread each, in turn: a thread must not take all calls."""
    names = [f"stacked-steps-{number}" for number in range(num_usable_cores())]
    return itertools.cycle([ThreadPoolExecutor(1, name) for name in names])


def _stepped(lanes: Lanes, aux: tuple[Any, ...] = ()) -> Stepped:
    # Placed like the lanes of the start: else the next step would be compiled again.
    stepped = Stepped(lanes, aux, jnp.copy(lanes.died))
    return kd_sharding.with_sharding_constraint(stepped, kd_sharding.REPLICATED)


@jax.jit
def start_lanes(states: Sequence[TrainState]) -> Lanes:
    """Return the states of trainings as lanes."""
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    lanes = Lanes(state, jnp.full(len(states), -1, jnp.int32))
    return kd_sharding.with_sharding_constraint(lanes, kd_sharding.REPLICATED)


def take_lane(runs: Sequence[Lanes], lane: int) -> TrainState:
    """Return the state of one lane; a copy."""
    width = len(runs[0].died)
    return _taken_lane(runs[lane // width].state, lane % width)


def take_lanes(runs: Sequence[Lanes], chosen: Sequence[int]) -> list[Lanes]:
    """Return some of the lanes."""
    if len(runs) > 1:
        return [runs[lane] for lane in chosen]
    return [_taken_lanes(runs[0], np.array(chosen))]


@jax.jit
def _taken_lane(state: TrainState, lane: int) -> TrainState:
    return _lane(state, lane)


@jax.jit
def _taken_lanes(lanes: Lanes, chosen: jax.Array) -> Lanes:
    taken = jax.tree.map(lambda leaf: leaf[chosen], lanes)
    return kd_sharding.with_sharding_constraint(taken, kd_sharding.REPLICATED)


def _lane(tree: Any, lane: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[lane], tree)
