"""How many steps make a short dispatch, estimated before any of them runs.

The estimate counts the arithmetic of the traced step and the memory that its operations
touch: XLA's own analysis is not there for GPUs.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

# A step that keeps the device busy for longer gains nothing from being grouped.
_LONG_STEP_SECONDS = 2e-3
# A dispatch stays this short, so that progress, Ctrl-C and SIGTERM are prompt.
_LONGEST_DISPATCH_SECONDS = 0.5
_STACKED_BYTES = 64 * 2**20
_MOST_STEPS = 1024
# Deliberately modest, so that the estimate errs on the side of short dispatches.
_ASSUMED_FLOPS_PER_SECOND = 2e13
_ASSUMED_BYTES_PER_SECOND = 5e11


def most_steps(jaxpr: ClosedJaxpr, *, bytes_per_step: int) -> int:
    """The most steps that make a short dispatch; 1 if a single one is long.

    Depends on the program and the kind of device alone, never on measured time.

    Args:
      jaxpr: The step, as `jax.jit(step).trace(...).jaxpr` gives it.
      bytes_per_step: Memory for what goes in and out of each step.
    """
    if jax.default_backend() == "cpu":
        return 1  # loops are slower there than the calls they save
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
    """Size of all arrays of a tree."""
    return sum(_size_of(leaf) for leaf in jax.tree.leaves(specs))


def seconds_of(jaxpr: ClosedJaxpr) -> float:
    """About how long a modest accelerator takes, if it fuses nothing."""
    flops, touched = _count(jaxpr.jaxpr)
    return flops / _ASSUMED_FLOPS_PER_SECOND + touched / _ASSUMED_BYTES_PER_SECOND


def _count(jaxpr: Jaxpr) -> tuple[float, float]:
    """Floating-point operations, and bytes that are read and written."""
    flops = touched = 0.0
    for equation in jaxpr.eqns:
        inner = [_count(body) for body in _bodies(equation)]
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
    """The functions that an equation calls."""
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
