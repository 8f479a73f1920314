"""How many steps make a short dispatch, estimated before any of them runs.

The same for batches of an evaluation. It depends on the program alone, never on measured
time: the same config gives the same numbers, run after run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import NamedSharding

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

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
    """Return the most steps that make a short dispatch; 1 if a single one is long.

    Depends on the program alone, never on measured time.

    Args:
      jaxpr: The step, as `jax.jit(step).trace(...).jaxpr` gives it.
      bytes_per_step: Memory for what goes in and out of each step.
    """
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
