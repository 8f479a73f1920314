"""Which standalone evaluators share a process. Imports no jax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def job_groups(strategies: Mapping[str, Any]) -> dict[str, list[str]]:
    """From the name of each process to the evaluators that run in it.

    Args:
      strategies: Run strategies by evaluator name.

    Example:
      >>> from kauldron import kd
      >>> grouped = kd.evals.StandaloneEveryCheckpoint(job_group="both")
      >>> alone = kd.evals.StandaloneLastCheckpoint()
      >>> job_groups({"a": grouped, "b": grouped, "c": alone, "d": kd.evals.Once(0)})
      {'both': ['a', 'b'], 'c': ['c']}
    """
    groups: dict[str, list[str]] = {}
    for name, run in strategies.items():
        if not run.runs_in_training:
            groups.setdefault(run.job_group or name, []).append(name)
    return groups
