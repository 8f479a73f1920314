"""The interface of engines: what starts the jobs of work units, and what stops them.

An engine is a frozen dataclass (its fields are what users may set, `--xp.executor.name`),
derived from `Executor`. It gets work units that are complete: every job has an argv, an
environment and a folder, whose record (`work_unit.json`) is on disk when `submit` is
called. All it has to do is to start, somewhere, the command

    python -m kauldron.kxm.runner <folder of the work unit> <job>

(`Executor.runner_command`), once for each job, or several times with different
`KXM_PROCESS_ID` for a job of several processes. The runner does what is the same on every
engine: it waits for the jobs that its job comes after, writes the log, the status and the
events, sends SIGTERM on to the program and gives it `grace_s` to save, notices a request
to stop (a file, so that it works on every engine and from every machine), and decides how
the job ended. What is left to the engine:

* `validate(units)`: refuse what can never run, before anything is written: resources that
  do not exist, options that do not fit, a program or extra that is not installed (name
  the extra: `pip install 'kauldron[slurm]'`). Raise `ValueError`, or `ImportError`.
* `submit(handle, units)`: start the jobs, or hand them to a queue. Jobs that succeeded are
  left alone; all others are to run, in the order of the units. Called for a launch and for
  `resume`. An engine that returns at once writes down the ids of its jobs, so that `poll`
  and `stop` of another process find them, and gives them to the runner, which puts them
  into the status (`KXM_ENGINE`, `KXM_ENGINE_ID`).
* After a runner has ended, the status says what comes next: `pending` means that the job
  is to be started again (it was preempted, or has restarts left), all else is final. A
  runner that vanished without a word left `running` behind.
* `poll(handle)`: give the states of jobs whose status is not final, as far as the engine
  knows them, with the reason. Those that wait or run on it are not started again by
  `resume`; a final state, of jobs that were killed outright, goes into the status.
* `stop(handle, units)`: take jobs that did not start out of the queue, and write `stopped`
  for them. The request to the runners is made by the caller.
* `wait(handle, timeout)`: return when all jobs are final, or after `timeout` seconds. The
  default looks at the status files.
* `submission_text(unit, job)`: what a dry run shows: the script or manifest.
* `waits`: whether a launch waits for the end unless told otherwise.

To be found by name, an engine has a line in `ENGINES`.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kauldron.errors import did_you_mean
from kauldron.kxm import records
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.jobs import Parameters

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle

Restart = Literal["never", "on_signal", "on_failure"]

# From the name on the command line to the class. Imported when asked for.
ENGINES = {
    "local": "local:Local",
    "stacked": "stacked:Stacked",
    "slurm": "slurm:Slurm",
    "ray": "ray:Ray",
    "k8s": "kubernetes:Kubernetes",
    "dry": "dry_run:DryRun",
}

_POLL_SECONDS = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Executor(Parameters):
    """Base of the engines; the module says what they do.

    Attributes:
      restart: When a job is started again: `never`; `on_signal`, if it was killed by a
        signal (out of memory, say); `on_failure`, whenever it failed.
      max_restarts: How often a job is started again.
      grace_s: How long a program may take to save, once it was told to stop.
    """

    waits: ClassVar[bool] = False

    restart: Restart = "on_signal"
    max_restarts: int = 3
    grace_s: float = 60.0

    def __post_init__(self) -> None:
        if self.restart not in ("never", "on_signal", "on_failure"):
            known = ("never", "on_signal", "on_failure")
            raise ValueError(
                f"restart={self.restart!r}: expected one of {', '.join(known)}."
                f"{did_you_mean(self.restart, known)}"
            )

    def validate(self, units: Sequence[WorkUnit]) -> None:
        """Refuse work units that can never run."""

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        """Start the jobs of work units that did not succeed yet."""
        raise NotImplementedError(f"{type(self).__name__} cannot start jobs.")

    def poll(
        self, handle: ExperimentHandle
    ) -> Mapping[tuple[int, str], tuple[str, str | None]]:
        """Return state and reason of jobs that are not final, by work unit and name."""
        del handle
        return {}

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        """Take jobs of these work units out of the queue."""

    def wait(self, handle: ExperimentHandle, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
          handle: The experiment.
          timeout: Seconds.

        Returns:
          Whether all jobs are final.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not handle.is_done():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def submission_text(self, unit: WorkUnit, job: WorkUnitJob) -> str:
        """Return what is handed to the engine, for a dry run; empty if nothing is."""
        del unit, job
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return what `executor_from_json` reads."""
        return {"type": type(self).__name__, "fields": self.explicit}


def runner_command(unit: WorkUnit, job: str, python: str | None = None) -> list[str]:
    """Return the command that runs a job of a work unit, on every engine."""
    python = python or sys.executable
    return [python, "-m", "kauldron.kxm.runner", str(unit.folder), job]


def unfinished(units: Sequence[WorkUnit]) -> list[tuple[WorkUnit, WorkUnitJob]]:
    """Return the jobs that did not succeed, in order."""
    return [
        (unit, job)
        for unit in units
        for job in unit.jobs.values()
        if unit.state_of(job.name) != records.SUCCEEDED
    ]


def executor_of(value: Any) -> Executor:
    """Return the engine that `executor=` means.

    Args:
      value: An engine, its name, or the name of its class.

    Raises:
      ValueError: There is no engine of that name.
      TypeError: It is neither an engine nor a name.
    """
    if isinstance(value, Executor):
        return value
    if not isinstance(value, str):
        raise TypeError(f"executor={value!r} is neither an engine nor its name.")
    classes = {where.partition(":")[2]: where for where in ENGINES.values()}
    where = ENGINES.get(value) or classes.get(value)
    if where is None:
        raise ValueError(
            f"There is no engine {value!r}.{did_you_mean(value, ENGINES)} Known: "
            f"{', '.join(ENGINES)}."
        )
    return load_engine(where)()


def load_engine(where: str) -> type[Executor]:
    """Import the class of an engine from `module:Class` in this package."""
    module, _, name = where.partition(":")
    path = f"{__package__}.{module}"
    return getattr(importlib.import_module(path), name)


def executor_from_json(data: Mapping[str, Any]) -> Executor:
    """Return the engine that a record describes."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data.get("fields", {}).items()
    }
    return type(executor_of(data["type"]))(**fields)
