"""Many steps in one compiled call, where nothing on the host happens between them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from kauldron import sharding as kd_sharding
from kauldron.data import DeviceRecords
from kauldron.train import step_cost, trainer_specs
from kauldron.train.auxiliaries import AuxiliariesState
from kauldron.train.train_step import TrainStep
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.train.feeds import Feed
    from kauldron.train.host_steps import HostSteps
    from kauldron.train.train_state import TrainState
    from kauldron.train.trainer import Trainer


class Dispatched(NamedTuple):
    """What a dispatch gives, as soon as the work is on its way.

    Attributes:
      state: The state after its updates.
      aux: What was measured; nothing unless its step logs.
      token: Ready when the updates are done. The state itself cannot be waited for: the
        next dispatch consumes it.
    """

    state: TrainState
    aux: AuxiliariesState
    token: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Dispatcher:
    """Runs the steps of a feed.

    Attributes:
      trainer: The experiment.
      host_steps: Where a dispatch must end.
      sizes: Numbers of steps that a dispatch may have, largest first. `()` when every
        step is a call of its own.
      records: The records, if they live on the devices: then feeds bring rows of them.
      calls_step: Whether `trainstep.step` itself must run every step.
    """

    trainer: Trainer
    host_steps: HostSteps
    sizes: tuple[int, ...] = ()
    records: DeviceRecords | None = None
    calls_step: bool = False

    @property
    def most(self) -> int:
        """The most steps that a dispatch takes."""
        return self.sizes[0] if self.sizes else 1

    def size_at(self, step: int) -> int:
        """How many steps the dispatch at `step` takes."""
        if not self.sizes:
            return 1
        free = self.host_steps.free_run(step, self.most)
        return next(size for size in self.sizes if size <= free)

    def put(self, batch: Any, size: int) -> Any:
        """Bring the batch (with `size > 1`, stacked batches) to the devices."""
        sharding = self.trainer.sharding.batch
        if size > 1:
            sharding = _stacked(sharding)
        return kd_sharding.device_put(batch, sharding)

    def put_rows(self, rows: np.ndarray) -> jax.Array:
        """Bring the rows of one batch, or of several, to the devices."""
        return kd_sharding.device_put(rows, kd_sharding.REPLICATED)

    def run(self, state: TrainState, feed: Feed, step: int) -> Dispatched:
        """Apply the feed's updates; a step that logs returns what was measured."""
        trainstep = self.trainer.trainstep
        columns = self.records.columns if self.records and feed.is_rows else None
        gather = None if columns is None else self._gather
        logs = self.host_steps.logs(step)
        if not (logs or self.calls_step):
            new_state, token = _run_steps(
                trainstep,
                state,
                feed.batch,
                columns,
                size=feed.size if self.sizes else None,
                gather=gather,
            )
            return Dispatched(new_state, _NOTHING, token)
        new_state, aux = trainstep.step(
            state,
            feed.batch if gather is None else gather(columns, feed.batch),
            return_losses=logs,
            return_metrics=logs,
            return_summaries=logs,
            checkify_error_categories=self.trainer.checkify_error_categories,
        )
        measured = jax.tree.leaves(aux)
        token = measured[0] if measured else _copy(new_state.step)
        return Dispatched(new_state, aux, token)

    @functools.cached_property
    def _gather(self) -> Callable[[Any, jax.Array], Any]:
        """The batch of some rows, compiled."""
        assert self.records is not None
        gather, sharding = self.records.gather, self.trainer.sharding.batch
        return jax.jit(
            lambda columns, rows: kd_sharding.with_sharding_constraint(
                gather(columns, rows), sharding
            )
        )


_NOTHING = AuxiliariesState(loss_states=None, metric_states=None, summary_states=None)


@functools.partial(
    jax.jit, static_argnames=("trainstep", "size", "gather"), donate_argnames=("state",)
)
def _run_steps(
    trainstep: TrainStep,
    state: TrainState,
    batches: Any,
    columns: Any,
    *,
    size: int | None,
    gather: Callable[[Any, jax.Array], Any] | None,
) -> tuple[TrainState, jax.Array]:
    """One step (`None`), or `size` steps. Where steps are grouped, also a single one
    goes through the scan, so that the grouping leaves no trace in the numbers."""

    def body(state: TrainState, batch: Any) -> tuple[TrainState, None]:
        if gather is not None:
            batch = gather(columns, batch)
        with trainstep.sharding.set_global_mesh():
            state, _ = trainstep._checked_step(state, batch)
        return trainstep._constrain(state), None

    if size == 1:
        batches = jax.tree.map(lambda leaf: leaf[None], batches)
    if size is None:
        state, _ = body(state, batches)
    else:
        state, _ = jax.lax.scan(body, state, batches)
    return state, jnp.copy(state.step)


@jax.jit
def _copy(x: jax.Array) -> jax.Array:
    return jnp.copy(x)


def _stacked(sharding: Any) -> Any:
    """The sharding of batches with one more leading axis."""
    if sharding is None:
        sharding = kd_sharding.FIRST_DIM
    return NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))


#
# How many steps
#


def make_dispatcher(trainer: Trainer, host_steps: HostSteps) -> Dispatcher:
    """Decide how many steps a dispatch may have, and where the records live.

    The decision depends on the config and the kind of device alone, never on measured
    time: the same config gives the same numbers, run after run.
    """
    records = DeviceRecords.of(trainer.train_ds)
    calls_step = _reason_to_call_step(trainer)
    most = _most_steps(trainer, calls_step, has_records=records is not None)
    # At most four programs to compile, and few calls for any number of steps.
    ratio = 2 ** max(1, (most.bit_length() - 1) // 3)
    sizes = tuple(most // ratio**i for i in range(3) if most // ratio**i > 1)
    if sizes:
        status.log(f"Up to {most} steps run in one dispatch.")
        sizes = (*sizes, 1)
    return Dispatcher(trainer, host_steps, sizes, records, calls_step is not None)


def _most_steps(trainer: Trainer, calls_step: str | None, *, has_records: bool) -> int:
    wanted = trainer.steps_per_dispatch
    obstacle = calls_step or _obstacle_to_grouping(trainer)
    if obstacle is None:
        if wanted == "auto":
            return _estimate_steps(trainer, has_records=has_records)
        return wanted
    if wanted not in ("auto", 1):
        status.log(f"steps_per_dispatch={wanted} is not used: {obstacle}.")
    return 1


def _reason_to_call_step(trainer: Trainer) -> str | None:
    """Why `trainstep.step` itself must run every step, if so."""
    if type(trainer.trainstep).step is not TrainStep.step:
        return f"{type(trainer.trainstep).__name__} overrides `step`"
    if trainer.checkify_error_categories:
        return "checkify looks at every step"
    return None


def _obstacle_to_grouping(trainer: Trainer) -> str | None:
    """Why every step must be a call of its own, if so."""
    if jax.config.jax_disable_jit or jax.config.jax_debug_nans:
        return "jax is in a debugging mode"
    if jax.process_count() > 1:
        return "several processes feed the devices"
    if not isinstance(trainer.sharding.batch, NamedSharding | None):
        return "`sharding.batch` is not a single sharding"
    return None


def _estimate_steps(trainer: Trainer, *, has_records: bool) -> int:
    """As many as are short, and divide the steps between two that log evenly."""
    if jax.default_backend() == "cpu":
        return 1  # what `step_cost` would say after lowering the step
    batch = trainer_specs.batch_specs(trainer)
    step: Any = type(trainer.trainstep).step
    most = step_cost.most_steps(
        step.lower(trainer.trainstep, trainer.state_specs, batch),
        bytes_per_step=0 if has_records else step_cost.num_bytes(batch),
    )
    intervals = (trainer.log_metrics_every, trainer.log_summaries_every)
    return even_share(min((n - 1 for n in intervals if n), default=most), most)


def even_share(count: int, most: int) -> int:
    """`count` steps in as few dispatches of equal size as possible: that size.

    Example:
      >>> even_share(999, 256)  # four dispatches of 249, and three single steps
      249
    """
    return max(1, count // math.ceil(count / most)) if count else 1
