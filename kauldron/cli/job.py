"""What `train` and `eval` share: the processes of a job, its end, and the debugger."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pdb
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kauldron.cli.command_table import FAILED
from kauldron.cli.fatal_errors import ANOTHER_HAS_ENDED, shorten_fatal_errors
from kauldron.cli.terminal import print_table, tell

if TYPE_CHECKING:
    from kauldron.train import Trainer


# Where launchers put the number of processes they started. `SLURM_NTASKS` is not among
# them: it is also set where only one process of an allocation runs.
_PROCESS_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")


# After this time the other processes notice that one has died, and end.
_HEARTBEAT_SECONDS = 20


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

    With `force`, also if nothing in the environment says that there are others.
    """
    options = distributed_options(os.environ, force=force)
    if options is not None:
        import jax

        shorten_fatal_errors()
        jax.distributed.initialize(
            **options, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS
        )


@contextlib.contextmanager
def ending_with_the_others() -> Iterator[None]:
    """Say in one line that another process of the job has died, and end at once.

    Leaving as usual would wait for the dead one, until jax ends the process with a
    stack of its own.
    """
    try:
        yield
    except Exception as error:
        from kauldron.train.run.lifecycle import is_process_lost

        if not is_process_lost(error):
            raise
        cause = str(error).splitlines()[0]
        print(f"{ANOTHER_HAS_ENDED} ({cause})", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILED)


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


def print_closing_table(trainer: Trainer, *, is_complete: bool = True) -> None:
    """Print the newest losses and metrics of each collection, and the workdir.

    A terminal that just showed all of them is told the workdir alone.
    """
    from kauldron import status, writers
    from kauldron.train.run.terminal import panel

    if not status.is_lead_host:
        return
    rows = []
    is_known = sys.stdout.isatty() and panel.has_shown_all(trainer.workdir)
    for collection in () if is_known else ("train", *trainer.evals):
        lines = writers.read_scalars(trainer.workdir / collection)
        if not lines:
            continue
        for name, value in lines[-1]["values"].items():
            if name.startswith(("losses/", "metrics/")):
                rows.append((collection, str(lines[-1]["step"]), name, _number(value)))
    if rows:
        print_table(rows, header=("collection", "step", "value", ""))
    if is_complete:
        print(f"Everything is in {trainer.workdir}")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


@contextlib.contextmanager
def without_traceback(*kinds: type[Exception], show_traceback: bool) -> Iterator[None]:
    """Report errors for which no code is at fault in one line, and exit with 1."""
    try:
        yield
    except kinds as error:
        tell(error, show_traceback=show_traceback)
        raise SystemExit(FAILED) from error


#
# An exception that nobody caught
#


_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

_FLAG = "catch_post_mortem"


def catch_post_mortem(fn: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """With `--catch_post_mortem`, open the debugger at the frame that failed.

    The exception is raised again afterwards, so that the process ends with an error.
    Without a terminal there is no debugger, only the exception. `KeyboardInterrupt` and
    `SystemExit` pass untouched.

    Args:
      fn: Typically the `main` of a program.

    Returns:
      The function, with the same signature and name.
    """
    from absl import flags

    if _FLAG not in flags.FLAGS:
        flags.DEFINE_bool(
            _FLAG, False, "Open the Python debugger where the run failed."
        )

    @functools.wraps(fn)
    def wrapper(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        is_on = flags.FLAGS.is_parsed() and bool(flags.FLAGS[_FLAG].value)
        with post_mortem(is_on=is_on):
            return fn(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def post_mortem(*, is_on: bool) -> Iterator[None]:
    """Open the debugger on what is raised inside, then raise it.

    Without a terminal, where nobody could answer, it is only raised.
    """
    try:
        yield
    except Exception as error:
        if is_on and sys.stdin.isatty() and sys.stdout.isatty():
            traceback.print_exception(error)
            pdb.post_mortem(error.__traceback__)
        raise
