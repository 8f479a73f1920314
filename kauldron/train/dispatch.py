"""Many steps in one compiled call, where nothing on the host happens between them."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from kauldron import sharding as kd_sharding
from kauldron.train import trainer_specs
from kauldron.train.train_step import TrainStep
from kauldron.utils import status

if TYPE_CHECKING:
    from kauldron.train.auxiliaries import AuxiliariesState
    from kauldron.train.feeder import Feed
    from kauldron.train.host_steps import HostSteps
    from kauldron.train.train_state import TrainState
    from kauldron.train.trainer import Trainer

# A step that keeps the device busy for longer gains nothing from being chunked.
_LONG_STEP_SECONDS = 2e-3
# A dispatch stays this short, so that progress, Ctrl-C and SIGTERM are prompt.
_LONGEST_DISPATCH_SECONDS = 0.5
_STACKED_BATCHES_BYTES = 64 * 2**20
_MOST_STEPS = 1024
# Deliberately modest, so that the estimate errs on the side of short dispatches.
_ASSUMED_FLOPS_PER_SECOND = 2e13
_ASSUMED_BYTES_PER_SECOND = 5e11


@dataclasses.dataclass(frozen=True)
class Dispatcher:
    """Runs the steps of a feed.

    Attributes:
      trainer: The experiment.
      host_steps: Where a dispatch must end.
      sizes: Numbers of steps that a dispatch may have, largest first. `()` when every
        step is a call of its own.
    """

    trainer: Trainer
    host_steps: HostSteps
    sizes: tuple[int, ...]

    def size_at(self, step: int) -> int:
        """How many steps the dispatch at `step` takes."""
        if not self.sizes:
            return 1
        free = self.host_steps.free_run(step, self.sizes[0])
        return next(size for size in self.sizes if size <= free)

    def put(self, batch: Any, size: int) -> Any:
        """Bring the batch (with `size > 1`, stacked batches) to the devices."""
        sharding = self.trainer.sharding.batch
        if size > 1:
            sharding = _stacked(sharding)
        return kd_sharding.device_put(batch, sharding)

    def run(
        self, state: TrainState, feed: Feed, step: int
    ) -> tuple[TrainState, AuxiliariesState | None]:
        """Apply the feed's updates; a step that logs returns what was measured."""
        trainer = self.trainer
        if self.host_steps.logs(step):
            return trainer.trainstep.step(
                state,
                feed.batch,
                return_losses=True,
                return_metrics=True,
                return_summaries=True,
                checkify_error_categories=trainer.checkify_error_categories,
            )
        if self.sizes:
            return _run_steps(trainer.trainstep, state, feed.batch, feed.size), None
        return trainer.trainstep.step(
            state,
            feed.batch,
            checkify_error_categories=trainer.checkify_error_categories,
        )


@functools.partial(
    jax.jit, static_argnames=("trainstep", "size"), donate_argnames=("state",)
)
def _run_steps(
    trainstep: TrainStep, state: TrainState, batches: Any, size: int
) -> TrainState:
    """`size` steps; also a single one goes through the scan, so that how steps were
    grouped leaves no trace in the numbers."""
    if size == 1:
        batches = jax.tree.map(lambda leaf: leaf[None], batches)

    def body(state: TrainState, batch: Any) -> tuple[TrainState, None]:
        with trainstep.sharding.set_global_mesh():
            state, _ = trainstep._step(state, batch)
        return trainstep._constrain(state), None

    return jax.lax.scan(body, state, batches)[0]


def _stacked(sharding: Any) -> Any:
    """The sharding of batches with one more leading axis."""
    if sharding is None:
        sharding = kd_sharding.FIRST_DIM
    return NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))


#
# How many steps
#


def make_dispatcher(trainer: Trainer, host_steps: HostSteps) -> Dispatcher:
    """Decide how many steps a dispatch may have.

    The decision depends on the config and the kind of device alone, never on measured
    time: the same config gives the same numbers, run after run.
    """
    wanted = trainer.steps_per_dispatch
    obstacle = _obstacle(trainer)
    if wanted == "auto":
        most = 1 if obstacle else _estimate_steps(trainer)
    else:
        most = wanted
        if obstacle and wanted > 1:
            status.log(f"steps_per_dispatch={wanted} is not used: {obstacle}.")
            most = 1
    if most == 1:
        return Dispatcher(trainer, host_steps, ())
    status.log(f"Up to {most} steps run in one dispatch.")
    sizes = {
        most,
        *(2**n for n in (most.bit_length() - 3, most.bit_length() - 5) if n > 0),
    }
    return Dispatcher(trainer, host_steps, (*sorted(sizes, reverse=True), 1))


def _obstacle(trainer: Trainer) -> str | None:
    """Why every step must be a call of its own, if so."""
    if type(trainer.trainstep).step is not TrainStep.step:
        return f"{type(trainer.trainstep).__name__} overrides `step`"
    if trainer.checkify_error_categories:
        return "checkify looks at every step"
    if jax.config.jax_disable_jit or jax.config.jax_debug_nans:
        return "jax is in a debugging mode"
    if jax.process_count() > 1:
        return "several processes feed the devices"
    if not isinstance(trainer.sharding.batch, NamedSharding | None):
        return "`sharding.batch` is not a single sharding"
    return None


def _estimate_steps(trainer: Trainer) -> int:
    """The most steps of this trainer that make a short dispatch; 1 if one is long."""
    if jax.default_backend() == "cpu":
        return 1  # loops are slower there than the calls they save
    batch = trainer_specs.batch_specs(trainer)
    step_seconds = _estimate_step_seconds(trainer, batch)
    if step_seconds > _LONG_STEP_SECONDS:
        return 1
    batch_bytes = sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(batch)
    )
    most = min(
        _MOST_STEPS,
        int(_LONGEST_DISPATCH_SECONDS / max(step_seconds, 1e-6)),
        _STACKED_BATCHES_BYTES // max(batch_bytes, 1),
    )
    return 1 << (max(most, 1).bit_length() - 1)


def _estimate_step_seconds(trainer: Trainer, batch: Any) -> float:
    """A rough device time of one step, from what the compiler counts in it."""
    step: Any = type(trainer.trainstep).step
    lowered = step.lower(trainer.trainstep, trainer.state_specs, batch)
    cost = lowered.cost_analysis() or {}
    return (
        cost.get("flops", 0.0) / _ASSUMED_FLOPS_PER_SECOND
        + cost.get("bytes accessed", 0.0) / _ASSUMED_BYTES_PER_SECOND
    )
