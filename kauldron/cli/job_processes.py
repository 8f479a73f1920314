"""Joins the processes of a job that runs on several hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

# Number of processes that were really started, as launchers tell it. `SLURM_NTASKS` is
# none of these: it is also set where only one process of an allocation runs.
_PROCESS_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")

# When one process dies, the others notice it after so long, and end.
_HEARTBEAT_SECONDS = 40


def start_distributed(*, force: bool = False) -> None:
    """Join the other processes, before any device is touched.

    Args:
      force: Do so even if the environment does not tell of other processes.
    """
    options = distributed_options(os.environ, force=force)
    if options is not None:
        import jax

        jax.distributed.initialize(
            **options, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS
        )


def distributed_options(
    environment: Mapping[str, str], *, force: bool = False
) -> dict[str, Any] | None:
    """Arguments of `jax.distributed.initialize`; `None` for a process of its own.

    Example:
      >>> distributed_options({"SLURM_NTASKS": "4"}) is None
      True
      >>> distributed_options({"SLURM_STEP_NUM_TASKS": "4"})
      {}
    """
    count = _number(environment.get("KXM_NUM_PROCESSES"))
    if count > 1:
        return {
            "coordinator_address": environment["JAX_COORDINATOR_ADDRESS"],
            "num_processes": count,
            "process_id": int(environment["KXM_PROCESS_ID"]),
        }
    if force or any(_number(environment.get(name)) > 1 for name in _PROCESS_COUNTS):
        return {}
    if len(environment.get("TPU_WORKER_HOSTNAMES", "").split(",")) > 1:
        return {}
    is_open = "JAX_COORDINATOR_ADDRESS" in environment and not any(
        name in environment for name in ("JAX_NUM_PROCESSES", "KXM_NUM_PROCESSES")
    )
    return {} if is_open else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 1
