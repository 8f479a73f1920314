"""Many steps in one dispatch, where nothing on the host happens between them.

On accelerators they are one compiled call. On a CPU, XLA's loops cost more than the calls
they save; there, each step is a call of its own, and what is saved is all that the host
does around it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from kauldron import sharding as kd_sharding
from kauldron import status
from kauldron.data import DeviceRecords, DeviceTransforms
from kauldron.data.stream_pipeline import is_stream
from kauldron.train import trainer_fields
from kauldron.train.programs import free_programs, jit_method
from kauldron.train.run import step_groups
from kauldron.train.state import AuxiliariesState
from kauldron.train.train_step import TrainStep

if TYPE_CHECKING:
    from kauldron.train.run.feed import Feed
    from kauldron.train.run.step_groups import HostSteps
    from kauldron.train.state import TrainState
    from kauldron.train.trainer import Trainer


class Dispatched(NamedTuple):
    """What a dispatch gives, as soon as the work is on its way.

    Attributes:
      state: The state after its updates.
      aux: What was measured; it counts only if its step logs.
      token: Ready when the updates are done. The state itself cannot be waited for: the
        next dispatch consumes it.
    """

    state: TrainState
    aux: AuxiliariesState
    token: jax.Array


class _Measured(NamedTuple):
    """What a step returns of what it measures: the flags of `TrainStep.step`."""

    return_losses: bool = False
    return_metrics: bool = False
    return_summaries: bool = False


@dataclasses.dataclass(eq=False)
class Dispatcher:
    """Runs the steps of a feed.

    There are at most two programs where every step is a call of its own: one for steps
    that log, one for the others. Steps that log summaries too need a program with them;
    then the others share that of steps that log metrics. Groups of steps are one more
    program, and steps that do not fill a group run as if they logged.

    Attributes:
      trainer: The experiment.
      host_steps: Where a dispatch must end.
      size: Number of steps in a group; 1 when every step is a call of its own.
      records: The records, if they live on the devices: then feeds bring rows of them.
      calls_step: Whether `trainstep.step` itself must run every step.
      transforms: What is left to do to the batches of the feeds, on the devices.
      in_calls: Whether each step of a group is a call of its own.
      takes_host_arrays: Whether batches come as they are: the call puts them on the
        device, which is the same memory.
      on_compile: Called before a program runs for the first time.
      step: The step that runs.
      speed: Steps per second, once they are known. They decide only how many calls are
        made in a row, which changes no result.
    """

    trainer: Trainer
    host_steps: HostSteps
    size: int = 1
    records: DeviceRecords | None = None
    calls_step: bool = False
    transforms: DeviceTransforms | None = None
    in_calls: bool = False
    takes_host_arrays: bool = False
    on_compile: Callable[[], None] = lambda: None
    step: int = 0
    speed: float | None = None
    _compiled: set[Any] = dataclasses.field(default_factory=set)
    _singly_until: int = 0

    def size_at(self, step: int) -> int:
        """Return how many steps the dispatch at `step` takes; call it in order of steps."""
        if self.in_calls:
            short = int(_LONGEST_CALLS_SECONDS * (self.speed or 0))
            return self.host_steps.free_run(step, max(1, min(self.size, short)))
        if step < self._singly_until:
            return 1
        free = self.host_steps.free_run(step, self.size)
        if free < self.size:
            self._singly_until = step + free
        return self.size if free == self.size else 1

    def put(self, batch: Any, size: int) -> Any:
        """Bring the batch (with `size > 1`, stacked batches) to the devices."""
        if self.takes_host_arrays and _are_plain_arrays(batch):
            return batch
        return put_batches(batch, self.trainer.sharding.batch, size)

    def put_rows(self, rows: np.ndarray) -> Any:
        """Bring the rows of one batch, or of several, to the devices."""
        if self.takes_host_arrays:
            return rows
        return kd_sharding.device_put(rows, kd_sharding.REPLICATED)

    def run(self, state: TrainState, feed: Feed, step: int) -> Dispatched:
        """Apply the feed's updates; a step that logs returns what was measured."""
        columns = self.records.columns if self.records and feed.is_rows else None
        if feed.size > 1 and not self.in_calls:
            self.step = step
            with self._guard(feed.batch, None, feed.is_rows):
                return self._programs.run_group(state, feed.batch, columns)
        measured = self._measured_at(step)  # nobody looks at the steps after it
        dispatched: Any = None
        batches = feed.batch if feed.size > 1 else [feed.batch]
        for self.step, batch in enumerate(batches, step):
            with self._guard(batch, measured, feed.is_rows):
                dispatched = self._run_step(state, batch, columns, measured)
            state = dispatched.state
        return dispatched

    def free_programs(self) -> None:
        """Free what the steps were compiled to."""
        free_programs(self.trainer.trainstep)
        free_programs(self._programs)

    def _run_step(
        self, state: TrainState, batch: Any, columns: Any, measured: _Measured
    ) -> Dispatched:
        if not self.calls_step:
            return self._programs.run_step(state, batch, columns, measured=measured)
        batch = self._programs.complete(batch, columns)
        state, aux = self.trainer.trainstep.step(
            state,
            batch,
            **measured._asdict(),
            checkify_error_categories=self.trainer.checkify_error_categories,
        )
        returned = jax.tree.leaves(aux)
        return Dispatched(state, aux, returned[0] if returned else _copy(state.step))

    def _measured_at(self, step: int) -> _Measured:
        if self.host_steps.logs_summaries(step):
            return _ALL
        host = self.host_steps
        if host.logs_metrics(step) or host.is_watched(step):  # perhaps the last alone
            return _METRICS if self._logs_metrics_alone else _ALL
        return self._measured_between_logs

    @functools.cached_property
    def _measured_between_logs(self) -> _Measured:
        """Nothing, unless that would be one more program to compile."""
        has_groups = self.size > 1 and not self.in_calls
        saves_a_program = has_groups or self.host_steps.summaries_every
        shares = self._logs_metrics_alone and saves_a_program and not self.calls_step
        return _METRICS if shares else _Measured()

    @functools.cached_property
    def _logs_metrics_alone(self) -> bool:
        """Whether metrics are logged at other steps than summaries."""
        every, summaries = (
            self.trainer.log_metrics_every,
            self.host_steps.summaries_every,
        )
        return bool(every) and not (summaries and every % summaries == 0)

    def _guard(self, batch: Any, measured: _Measured | None, is_rows: bool) -> Any:
        """Forbid hidden transfers, which make the device wait, in compiled programs."""
        shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(batch)]
        program = (measured, is_rows, *shapes)
        if program not in self._compiled:
            self.on_compile()
            self._compiled.add(program)
        elif not (
            self.takes_host_arrays or self.calls_step or step_groups.is_debugging()
        ):
            return jax.transfer_guard("disallow")
        return contextlib.nullcontext()

    @functools.cached_property
    def _programs(self) -> _Programs:
        """Programs; a second run of the same train step finds those of the first."""
        trainstep = self.trainer.trainstep
        if self.records is not None:  # they must not outlive the run
            return _Programs(trainstep, self.records)
        known = vars(trainstep).setdefault("_programs", {})
        key = (self.transforms and self.transforms.key, self.takes_host_arrays)
        programs = _Programs(trainstep, None, self.transforms, self.takes_host_arrays)
        return known.setdefault(key, programs)


@dataclasses.dataclass(eq=False)
class _Programs:
    """The programs of a train step, on batches or on rows of records."""

    trainstep: TrainStep
    records: DeviceRecords | None = None
    transforms: DeviceTransforms | None = None
    takes_host_arrays: bool = False

    @jit_method(static_argnames="measured", donate_argnames="state")
    def run_step(
        self, state: TrainState, batch: Any, columns: Any, *, measured: _Measured
    ) -> Dispatched:
        batch = self.complete(batch, columns)
        state, aux = self.trainstep.step(state, batch, **measured._asdict())
        return Dispatched(state, aux, jnp.copy(state.step))

    @jit_method(donate_argnames="state")
    def run_group(self, state: TrainState, batches: Any, columns: Any) -> Dispatched:
        def body(state: TrainState, batch: Any) -> tuple[TrainState, None]:
            return self.run_step(
                state, batch, columns, measured=_Measured()
            ).state, None

        state, _ = jax.lax.scan(body, state, batches)
        return Dispatched(state, AuxiliariesState(), jnp.copy(state.step))

    def complete(self, batch: Any, columns: Any) -> Any:
        """Return the batch that a feed brings, or brings the rows of."""
        if columns is None and self.transforms is None:
            if not self.takes_host_arrays:
                return batch
            # As if it had been put there: a trace of the step is found again.
            sharding = self.trainstep.sharding.batch
            sharding = kd_sharding.FIRST_DIM if sharding is None else sharding
            return kd_sharding.with_sharding_constraint(batch, sharding)
        return self._complete(batch, columns)

    @jit_method()
    def _complete(self, batch: Any, columns: Any) -> Any:
        if columns is not None:
            assert self.records is not None
            batch = self.records.gather(columns, batch)
        elif self.transforms is not None:
            batch = self.transforms.apply(batch)
        return kd_sharding.with_sharding_constraint(
            batch, self.trainstep.sharding.batch
        )


_METRICS = _Measured(return_losses=True, return_metrics=True)
_ALL = _METRICS._replace(return_summaries=True)


@jax.jit
def _copy(x: jax.Array) -> jax.Array:
    return jnp.copy(x)


def _are_plain_arrays(batch: Any) -> bool:
    """Return whether a compiled function takes a batch as `put_batches` would."""
    return all(
        type(leaf) is np.ndarray
        and leaf.ndim
        and leaf.dtype.kind in "biufc"
        and leaf.dtype.isnative
        for leaf in jax.tree.leaves(batch)
    )


def put_batches(batch: Any, sharding: Any, size: int) -> Any:
    """Bring a batch, or `size` batches with one more leading axis, to the devices."""
    if size > 1:
        sharding = kd_sharding.FIRST_DIM if sharding is None else sharding
        sharding = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
    return kd_sharding.device_put(batch, sharding)


#
# How many steps
#


# Calls in a row: what comes before and after them is paid once; more would gain little.
_MOST_CALLS = 16
_BYTES_OF_CALLS = 8 * 2**20
_LONGEST_CALLS_SECONDS = 0.05


def make_dispatcher(trainer: Trainer, host_steps: HostSteps) -> Dispatcher:
    """Decide how many steps a dispatch may have, and where the records live.

    Which programs run depends on the config and the kind of device alone, never on
    measured time: the same config gives the same numbers, run after run.
    """
    sharding = trainer.sharding.batch
    records = DeviceRecords.of(trainer.train_ds)
    transforms = None
    if records is None:
        transforms = DeviceTransforms.of(trainer.train_ds, sharding=sharding)
    if transforms is not None:
        status.log(
            f"These transforms run on the device, inside the train step: {transforms}."
        )
    reason = reason_to_call_step(trainer)
    dispatcher = Dispatcher(
        trainer,
        host_steps,
        records=records,
        calls_step=reason is not None,
        transforms=transforms,
    )
    wanted = trainer.steps_per_dispatch
    obstacle = reason or step_groups.obstacle(trainer)
    if obstacle is not None:
        if wanted not in ("auto", 1):
            status.log(f"steps_per_dispatch={wanted} is not used: {obstacle}.")
    elif wanted == "auto" and jax.default_backend() == "cpu":
        # Several devices would wait for each other in more programs than there are
        # threads.
        if jax.device_count() == 1:
            dispatcher.size = _most_calls(dispatcher)
            dispatcher.in_calls = True
            dispatcher.takes_host_arrays = is_stream(trainer.train_ds)
    else:
        most = _estimate_steps(dispatcher) if wanted == "auto" else wanted
        if most > 1:
            dispatcher.size = step_groups.best_size(host_steps.planned_runs(), most)
        if dispatcher.size > 1:
            status.log(f"Groups of {dispatcher.size} steps run in one dispatch.")
    return dispatcher


def reason_to_call_step(trainer: Trainer) -> str | None:
    """Return why `trainstep.step` itself must run every step, if so."""
    if type(trainer.trainstep).step is not TrainStep.step:
        return f"{type(trainer.trainstep).__name__} overrides `step`"
    if trainer.checkify_error_categories:
        return "checkify looks at every step"
    return None


def _most_calls(dispatcher: Dispatcher) -> int:
    size = 0
    if dispatcher.records is None:
        size = step_groups.num_bytes(trainer_fields.batch_specs(dispatcher.trainer))
    return max(1, min(_MOST_CALLS, _BYTES_OF_CALLS // max(size, 1)))


def _estimate_steps(dispatcher: Dispatcher) -> int:
    """Return the most steps that make a short dispatch."""
    trainer = dispatcher.trainer
    batch = trainer_fields.batch_specs(trainer)
    if dispatcher.records is not None:
        bytes_sent = 0
    elif dispatcher.transforms is not None:
        bytes_sent = dispatcher.transforms.bytes_of_batch[0]
    else:
        bytes_sent = step_groups.num_bytes(batch)
    traced = trainer.trainstep.step.trace(trainer.state_specs, batch)
    return step_groups.most_steps(traced.jaxpr, bytes_per_step=bytes_sent)
