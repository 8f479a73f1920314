"""How many steps make a short dispatch, estimated before any of them runs."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

# A step that keeps the device busy for longer gains nothing from being grouped.
_LONG_STEP_SECONDS = 2e-3
# A dispatch stays this short, so that progress, Ctrl-C and SIGTERM are prompt.
_LONGEST_DISPATCH_SECONDS = 0.5
_STACKED_BYTES = 64 * 2**20
_MOST_STEPS = 1024
# Deliberately modest, so that the estimate errs on the side of short dispatches.
_ASSUMED_FLOPS_PER_SECOND = 2e13
_ASSUMED_BYTES_PER_SECOND = 5e11


def most_steps(lowered: Any, *, bytes_per_step: int) -> int:
    """The most steps that make a short dispatch; 1 if a single one is long.

    Depends on the program and the kind of device alone, never on measured time.

    Args:
      lowered: The step, as `jax.jit(step).lower(...)` gives it.
      bytes_per_step: Memory for what goes in and out of each step.
    """
    if jax.default_backend() == "cpu":
        return 1  # loops are slower there than the calls they save
    cost = lowered.cost_analysis() or {}
    seconds = (
        cost.get("flops", 0.0) / _ASSUMED_FLOPS_PER_SECOND
        + cost.get("bytes accessed", 0.0) / _ASSUMED_BYTES_PER_SECOND
    )
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
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(specs)
    )
