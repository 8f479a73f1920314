"""Which trainers share a program, and what a stack of them needs."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron.data.engine.costs import num_usable_cores
from kauldron.train import trainer_fields
from kauldron.train.run import dispatch, lifecycle, step_groups
from kauldron.train.stacked import batches, steps

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

_SHARE_OF_MEMORY = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class StackPlan:
    """Trainers that are trained together.

    Attributes:
      numbers: Which of all trainers.
      trainers: The trainers.
      traced: Their steps; empty if there is an obstacle.
      obstacle: Why the trainer is trained alone, if it has to be.
    """

    numbers: Sequence[int]
    trainers: Sequence[Trainer]
    traced: Sequence[steps.TracedStep] = ()
    obstacle: str | None = None

    @functools.cached_property
    def memory(self) -> int | None:
        """Bytes on the device that a step of the stack needs; `None` if unknown."""
        return self._memory(len(self.numbers)) if self.traced else None

    @functools.cached_property
    def largest(self) -> int | None:
        """How many trainers fit into the memory of the device; `None` if unknown."""
        limit = _memory_of_device()
        if self.memory is None or not limit:
            return None
        count = len(self.numbers)
        alone = self.memory if count == 1 else self._memory(1)
        assert alone is not None
        each = (self.memory - alone) / (count - 1) if count > 1 else self.memory
        fixed = self.memory - each * count
        return max(0, int((limit * _SHARE_OF_MEMORY - fixed) / max(each, 1)))

    def _memory(self, count: int) -> int | None:
        keys = [batches.data_key(trainer) for trainer in self.trainers[:count]]
        order = list(dict.fromkeys(keys))
        step = steps.StackedStep(
            self.traced[:count],
            np.ones(count, bool),
            np.array([order.index(key) for key in keys]),
        )
        trainer = self.trainers[0]
        width = steps.lanes_per_run(self.traced[:count])
        lanes = jax.eval_shape(steps.start_lanes, [trainer.state_specs] * width)
        batch = steps.plain_specs(trainer_fields.batch_specs(trainer))
        args = step.arguments(
            step.runs[0], (batch,) * len(order), np.ones(count, bool), are_rows=False
        )
        run: Any = step.run_measured
        analysis = run.lower(lanes, *args).compile().memory_analysis()
        if analysis is None:
            return None
        waiting = (count - width) * step_groups.num_bytes(trainer.state_specs)
        at_once = min(len(step.runs), num_usable_cores())
        return (
            waiting
            + analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes * at_once
            - analysis.alias_size_in_bytes
        )


def make_stacks(
    trainers: Sequence[Trainer],
    *,
    max_units: int,
    together: Sequence[Any] | None = None,
) -> list[StackPlan]:
    """Divide trainers into stacks by comparing their programs.

    Args:
      trainers: The experiments.
      max_units: The largest stack.
      together: For each trainer, what is equal for those that were trained together
        before; `None` for one that was not.

    Returns:
      The stacks, in the order of their first trainers.
    """
    obstacles = {n: obstacle_to_stacking(t) for n, t in enumerate(trainers)}
    alone = [
        StackPlan(numbers=[number], trainers=[trainers[number]], obstacle=obstacle)
        for number, obstacle in obstacles.items()
        if obstacle is not None
    ]
    free = [number for number, obstacle in obstacles.items() if obstacle is None]
    traced = {number: steps.TracedStep.of(trainers[number]) for number in free}
    groups = steps.group_steps(list(traced.values()))
    stacks = [
        StackPlan(
            numbers=chunk,
            trainers=[trainers[number] for number in chunk],
            traced=[traced[number] for number in chunk],
        )
        for group in groups
        for chunk in _chunks([free[n] for n in group], together, max_units)
    ]
    return sorted([*alone, *stacks], key=lambda stack: stack.numbers[0])


def _chunks(
    numbers: Sequence[int], together: Sequence[Any] | None, max_units: int
) -> list[list[int]]:
    """Divide trainers into stacks; what was together stays together."""
    before: dict[Any, list[int]] = {}
    new: list[int] = []
    for number in numbers:
        key = None if together is None else together[number]
        (new if key is None else before.setdefault(key, [])).append(number)
    starts = range(0, len(new), max_units)
    return [*before.values(), *(new[start : start + max_units] for start in starts)]


def obstacle_to_stacking(trainer: Trainer) -> str | None:
    """Return why a trainer has to be trained alone, if so."""
    reason = dispatch.reason_to_call_step(trainer)
    if reason is not None:
        return reason
    if trainer.hooks:
        return "it has hooks, which may end it before the others"
    if step_groups.is_debugging():
        return "jax is in a debugging mode"
    if jax.device_count() > 1:
        return f"there are {jax.device_count()} devices, and a stack lives on one"
    if lifecycle.find_last_step(trainer) is None:
        return "its number of steps is not known"
    return None


def _memory_of_device() -> int | None:
    """Return the bytes of memory of the device."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if jax.default_backend() == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
