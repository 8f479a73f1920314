"""What `train` and `eval` share: the processes of a job, and the table at its end."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kauldron.cli.terminal import print_table

if TYPE_CHECKING:
    from kauldron.train import Trainer


# Where launchers put the number of processes they started. `SLURM_NTASKS` is not among
# them: it is also set where only one process of an allocation runs.
_PROCESS_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")


# After this time the other processes notice that one has died, and end.
_HEARTBEAT_SECONDS = 40


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that run a job."""
    parser.add_argument(
        "--distributed",
        **_SWITCH,
        help="join the other processes of the job, where jax cannot tell by itself",
    )
    parser.add_argument(
        "--catch_post_mortem",
        **_SWITCH,
        help="open the debugger where an error was raised",
    )


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTHS[text.lower()]


# `--name`, and `--name=true` as launchers write it.
_SWITCH: dict[str, Any] = {
    "nargs": "?",
    "const": True,
    "default": False,
    "type": _truth,
    "metavar": "BOOL",
}


#
# Processes
#


def start_job(args: argparse.Namespace) -> None:
    """Join the processes of the job, and open the port that the launcher asks for."""
    start_distributed(force=args.distributed)
    port = os.environ.get("KXM_PROFILER_PORT")
    if port:
        import jax

        jax.profiler.start_server(int(port))


def start_distributed(*, force: bool = False) -> None:
    """Join the other processes, before any device is touched.

    Args:
      force: Join even if nothing in the environment says that there are others.
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
    """Return arguments for `jax.distributed.initialize`; `None` for a single process.

    Example:
      >>> distributed_options({"SLURM_NTASKS": "4"}) is None
      True
      >>> distributed_options({"SLURM_STEP_NUM_TASKS": "4"})
      {}
    """
    count = _count(environment.get("KXM_NUM_PROCESSES"))
    if count > 1:
        return {
            "coordinator_address": environment["JAX_COORDINATOR_ADDRESS"],
            "num_processes": count,
            "process_id": int(environment["KXM_PROCESS_ID"]),
        }
    if force or any(_count(environment.get(name)) > 1 for name in _PROCESS_COUNTS):
        return {}
    if len(environment.get("TPU_WORKER_HOSTNAMES", "").split(",")) > 1:
        return {}
    is_open = "JAX_COORDINATOR_ADDRESS" in environment and not any(
        name in environment for name in ("JAX_NUM_PROCESSES", "KXM_NUM_PROCESSES")
    )
    return {} if is_open else None


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 1


#
# The end
#


def print_closing_table(trainer: Trainer) -> None:
    """Print the newest losses and metrics of each collection, and the workdir."""
    from kauldron import writers
    from kauldron.utils import status

    if not status.is_lead_host:
        return
    rows = []
    for collection in ("train", *trainer.evals):
        lines = writers.read_scalars(trainer.workdir / collection)
        if not lines:
            continue
        for name, value in lines[-1]["values"].items():
            if name.startswith(("losses/", "metrics/")):
                rows.append((collection, str(lines[-1]["step"]), name, _number(value)))
    if rows:
        print_table(rows, header=("collection", "step", "value", ""))
    print(f"Everything is in {trainer.workdir}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"
