"""How many steps a dispatch may have: until the host must look, and while it is short.

The latter is estimated before any step runs, also for batches of an evaluation. It
depends on the program alone, never on measured time: the same config gives the same
numbers, run after run.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import NamedSharding

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

#
# At which steps the host must look
#


# How many steps at each end of training are planned.
_PLANNED_STEPS = 5_000


@dataclasses.dataclass(frozen=True)
class HostSteps:
    """The steps before, or in, which something happens on the host."""

    trainer: Trainer
    last_step: int | None  # unknown if the data decides

    def logs_metrics(self, step: int) -> bool:
        """Return whether the update `step` writes metrics."""
        every = self.trainer.log_metrics_every
        if not every:
            return False
        is_last = self.last_step is not None and step == self.last_step - 1
        return step % every == 0 or is_last

    def logs_summaries(self, step: int) -> bool:
        """Return whether the update `step` writes summaries."""
        every = self.summaries_every
        return bool(every) and step % every == 0

    @functools.cached_property
    def summaries_every(self) -> int | None:
        """How often summaries are written; `None` for never, or if there are none."""
        has_summaries = self.trainer.trainstep.aux.summaries
        return self.trainer.log_summaries_every if has_summaries else None

    def logs(self, step: int) -> bool:
        """Return whether the update `step` writes anything."""
        return self.logs_metrics(step) or self.logs_summaries(step)

    def is_watched(self, step: int) -> bool:
        """Return whether a hook wants the values of the update `step`."""
        return any(hook.wants_values(step) for hook in self.trainer.hooks.values())

    def is_seen(self, step: int) -> bool:
        """Return whether anybody looks at the values of the update `step`."""
        return self.logs(step) or self.is_watched(step)

    def pauses_before(self, step: int) -> bool:
        """Return whether anything happens between the updates `step - 1` and `step`."""
        is_last = step == self.last_step
        return (
            is_last or self._evaluates(step) or self.trainer.checkpointer.is_due(step)
        )

    def free_run(self, step: int, limit: int) -> int:
        """Return how many updates from `step` on the host need not see (up to `limit`).

        At least 1: a step that logs stands alone.
        """
        if self.is_seen(step):
            return 1
        for size in range(1, limit):
            if self.pauses_before(step + size) or self.is_seen(step + size):
                return size
        return limit

    def planned_runs(self) -> list[int]:
        """Lengths of the runs that the host need not see, at both ends of training.

        What happens by chance or by the clock is not planned.
        """
        runs: list[int] = []
        last = self.last_step
        spans = [(0, _PLANNED_STEPS if last is None else min(last, _PLANNED_STEPS))]
        if last is not None and last > _PLANNED_STEPS:
            spans.append((max(_PLANNED_STEPS, last - _PLANNED_STEPS), last))
        for start, stop in spans:
            length = 0
            for step in range(start, stop):
                if length and (self.is_seen(step) or self.plans_to_pause(step)):
                    runs.append(length)
                    length = 0
                length += not self.is_seen(step)
            runs.append(length)
        return [run for run in runs if run]

    def plans_to_pause(self, step: int) -> bool:
        """Return whether the config alone makes the host pause before `step`."""
        return self._evaluates(step) or self.trainer.checkpointer.is_planned(step)

    def _evaluates(self, step: int) -> bool:
        return any(
            evaluator.run.should_eval_in_train(step)
            for evaluator in self.trainer.evals.values()
        )


#
# How many steps are short
#


# A step that keeps the device busy for longer gains nothing from being grouped.
_LONG_STEP_SECONDS = 2e-3
# A dispatch stays this short, so that progress, Ctrl-C and SIGTERM are prompt.
_LONGEST_DISPATCH_SECONDS = 0.5
_STACKED_BYTES = 64 * 2**20
_MOST_STEPS = 1024
# Deliberately modest, so that the estimate errs on the side of short dispatches.
_ASSUMED_FLOPS_PER_SECOND = 2e13
_ASSUMED_BYTES_PER_SECOND = 5e11


def is_debugging() -> bool:
    """Return whether jax runs programs in another way than usual, to find mistakes."""
    return jax.config.jax_disable_jit or jax.config.jax_debug_nans


def obstacle(trainer: Trainer) -> str | None:
    """Return why every step, or batch of an evaluation, is a call of its own, if so."""
    if is_debugging():
        return "jax is in a debugging mode"
    if jax.process_count() > 1:
        return "several processes feed the devices"
    if not isinstance(trainer.sharding.batch, NamedSharding | None):
        return "`sharding.batch` is not a single sharding"
    return None


def best_size(runs: Sequence[int], most: int) -> int:
    """Return the size of groups that needs the fewest calls.

    All groups have the same size.

    Args:
      runs: Numbers of steps that follow each other; what fills no group runs singly.
      most: The largest size.

    Example:
      >>> best_size([999, 999], 256)  # four groups of 249, three single steps, twice
      249
    """
    sizes = {run // math.ceil(run / most) for run in runs} | {1}
    sizes |= {min(most, run) for run in runs}

    def calls(size: int) -> int:
        return sum(run // size + run % size for run in runs)

    return min(sizes, key=lambda size: (calls(size), -size))


def most_steps(jaxpr: ClosedJaxpr, *, bytes_per_step: int) -> int:
    """Return the most steps that make a short dispatch; 1 if a single one is long."""
    seconds = seconds_of(jaxpr)
    if seconds > _LONG_STEP_SECONDS:
        return 1
    most = min(
        _MOST_STEPS,
        int(_LONGEST_DISPATCH_SECONDS / max(seconds, 1e-6)),
        _STACKED_BYTES // max(bytes_per_step, 1),
    )
    return max(most, 1)


def num_bytes(specs: Any) -> int:
    """Return the size of all arrays of a tree."""
    return sum(_size_of(leaf) for leaf in jax.tree.leaves(specs))


def seconds_of(jaxpr: ClosedJaxpr) -> float:
    """About how long a modest accelerator takes, if it fuses nothing."""
    flops, touched = work_of(jaxpr.jaxpr)
    return flops / _ASSUMED_FLOPS_PER_SECOND + touched / _ASSUMED_BYTES_PER_SECOND


def work_of(jaxpr: Jaxpr) -> tuple[float, float]:
    """Floating-point operations, and bytes that are read and written."""
    flops = touched = 0.0
    for equation in jaxpr.eqns:
        inner = [work_of(body) for body in _bodies(equation)]
        if inner:
            times = equation.params.get("length", 1)  # of a scan
            flops += times * sum(count[0] for count in inner)
            touched += times * sum(count[1] for count in inner)
            continue
        results = [variable.aval for variable in equation.outvars]
        operands = [atom.aval for atom in equation.invars]
        flops += _multiplications(equation) * sum(map(_num_elements, results))
        touched += sum(map(_size_of, results)) + sum(map(_size_of, operands))
    return flops, touched


def _multiplications(equation: Any) -> float:
    """Operations per element of the result."""
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * math.prod(shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        return 2 * math.prod(kernel) / kernel[params["dimension_numbers"].rhs_spec[0]]
    return 1


def _bodies(equation: Any) -> list[Jaxpr]:
    """Return the functions that an equation calls."""
    found = []
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                found.append(item.jaxpr)
            elif isinstance(item, Jaxpr):
                found.append(item)
    return found


def _num_elements(spec: Any) -> int:
    return math.prod(getattr(spec, "shape", ()))


def _size_of(spec: Any) -> int:
    dtype = getattr(spec, "dtype", None)
    if dtype is None:
        return 0
    is_plain = isinstance(dtype, np.dtype)
    return _num_elements(spec) * (dtype.itemsize if is_plain else 8)  # or a key
