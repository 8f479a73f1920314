"""The interface of engines: what starts the jobs of work units, and what stops them.

An engine is a frozen dataclass (its fields are what users may set, `--xp.executor.name`),
derived from `Executor`. It gets work units that are complete: every job has an argv, an
environment and a folder, whose record (`work_unit.json`) is on disk when `submit` is
called. All it has to do is to start, somewhere, the command

    python -m kauldron.kxm.runner <folder of the work unit> <job>

(`runner_command`), once for each job, or several times with different
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
  runner that was killed leaves `running` behind. Engines that see nothing but exit codes
  set `KXM_RESTART_BY_EXIT_CODE`: the runner then exits with 143 if the job is to be
  started again, and only then.
* `poll(handle)`: give the states of jobs whose status is not final, as far as the engine
  knows them, with the reason. `resume` does not start jobs again that still wait or run
  on it. A final state, such as that of a job killed outright, goes into the status.
* `stop(handle, units)`: take jobs that did not start out of the queue, and write `stopped`
  for them. The request to the runners is made by the caller.
* `wait(handle, timeout)`: return when all jobs are final, or after `timeout` seconds. The
  default looks at the status files.
* `submission_text(unit, job)`: what a dry run shows: the script or manifest.
* `waits`: whether a launch waits for the end unless told otherwise.

To be found by name, an engine has a line in `ENGINES`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kauldron.errors import did_you_mean, error_prefix
from kauldron.kxm import records
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.jobs import Parameters

if TYPE_CHECKING:
    import pathlib

    from kauldron.kxm.handle import ExperimentHandle

Restart = Literal["never", "on_signal", "on_failure"]

COORDINATOR_PORT = 8476  # where the processes of a job meet, on its first node

# From the name on the command line to the class. Imported when asked for.
ENGINES = {
    "local": "local:Local",
    "stacked": "stacked:Stacked",
    "slurm": "slurm:Slurm",
    "ray": "ray:Ray",
    "k8s": "kubernetes:Kubernetes",
    "sky": "skypilot:SkyPilot",
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

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(
                    f"{type(self).__name__}({name}={value}): expected at least 1."
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


#
# Engines that write manifests
#


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ManifestExecutor(Executor):
    """Base of engines that write one file for each job, for a tool that starts them.

    The folder of the experiment has to be visible to the jobs at the same path: the runner
    of each reads its command there, and writes log and status, from which the states come.

    Attributes:
      volume: `name:/path`: storage that is mounted where the jobs run, and at which path.
        The folder of the experiment has to lie below.
      apply: Whether to run the tool; otherwise its commands are printed.
      python: The interpreter where the jobs run.
    """

    tool: ClassVar[str]
    engine_name: ClassVar[str]  # in the status of jobs
    manifest_folder: ClassVar[str]  # in `.kxm`

    volume: str | None = None
    apply: bool = False
    python: str = "python"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.volume is not None and self.mount is None:
            raise ValueError(f"volume={self.volume!r}: expected `name:/path`.")

    @property
    def mount(self) -> tuple[str, str] | None:
        """The name of the volume and where it is mounted."""
        match = re.fullmatch(r"(.+):(/(?!/).*)", self.volume or "")
        return (match[1], match[2]) if match else None

    def validate(self, units: Sequence[WorkUnit]) -> None:
        name = type(self).__name__
        if self.apply and shutil.which(self.tool) is None:
            raise ValueError(f"{name}(apply=True) needs {self.tool} on PATH.")
        if self.mount is None:
            return
        mount = self.mount[1].rstrip("/") + "/"
        for unit in units:
            if not str(unit.xp_dir).startswith(mount):
                raise ValueError(
                    f"The folder {unit.xp_dir} is not on the volume at {mount}. Set "
                    f"--xp.root_dir={mount}..."
                )

    def manifest(self, unit: WorkUnit, job: WorkUnitJob) -> dict[str, Any]:
        """Return what the tool has to know about one job, as data."""
        raise NotImplementedError

    def start_commands(
        self, folder: pathlib.Path, manifests: Mapping[str, pathlib.Path]
    ) -> list[list[str]]:
        """Return the commands that start jobs, given their manifest files by name."""
        raise NotImplementedError

    def stop_commands(self, names: Sequence[str]) -> list[list[str]]:
        """Return the commands that take jobs out of the queue."""
        raise NotImplementedError

    def submission_text(self, unit: WorkUnit, job: WorkUnitJob) -> str:
        return json.dumps(self.manifest(unit, job), indent=1)

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        folder = records.private(handle.xp_dir) / self.manifest_folder
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():  # of jobs that may be over
            old.unlink()
        manifests: dict[str, pathlib.Path] = {}
        known = []
        for unit, job in unfinished(units):
            name = object_name(unit, job)
            status = records.read_status(unit.folder, job.name)
            if status.get("engine_id") == name:
                known.append(name)
            manifests[name] = folder / f"{name}.json"
            manifests[name].write_text(self.submission_text(unit, job) + "\n")
            records.write_status(
                unit.folder, job.name, engine=self.engine_name, engine_id=name
            )
        for unit in units:
            self._use_paths_of_jobs(unit)
        before = self.stop_commands(known) if known else []
        start = self.start_commands(folder, manifests)
        if self.apply:
            for command in before:
                with contextlib.suppress(RuntimeError):  # it may be gone
                    _run_tool(command)
            for command in start:
                _run_tool(command)
            return
        plural = "" if len(manifests) == 1 else "s"
        print(f"{len(manifests)} manifest{plural} in {folder}. To start:")
        for command in [*before, *start]:
            print(f"  {shlex.join(command)}", flush=True)

    def _use_paths_of_jobs(self, unit: WorkUnit) -> None:
        """Write commands that make sense where the jobs run."""
        record = records.read_unit(unit.folder)
        for job in record["jobs"].values():
            job |= self.moved(job["argv"], job["cwd"])
        records.write_unit(unit.folder, record)

    def moved(self, argv: list[str], cwd: str) -> dict[str, Any]:
        """Return command and working directory as they are where the jobs run."""
        here = argv[:1] == [sys.executable]
        return {"argv": [self.python, *argv[1:]] if here else argv, "cwd": cwd}

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        names = []
        for unit, job in unfinished(units):
            if unit.state_of(job.name) == records.PENDING:
                unit.set_state(job.name, records.STOPPED)
                names.append(object_name(unit, job))
        if names and self.apply:
            for command in self.stop_commands(names):
                _run_tool(command)

    def runner_environment(self, name: str) -> dict[str, str]:
        """Return the environment of the runner of a job."""
        return {
            "KXM_ENGINE": self.engine_name,
            "KXM_ENGINE_ID": name,
            "KXM_RESTART_BY_EXIT_CODE": "1",
        }


def _run_tool(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        problem = done.stderr.strip() or done.stdout.strip()
        raise RuntimeError(f"{shlex.join(command)} failed: {problem}")


def object_name(unit: WorkUnit, job: WorkUnitJob) -> str:
    """Return a name of at most 52 small letters, digits and dashes."""
    return label(f"kd-{unit.xid}-{unit.wid}-{job.name}", longest=52)


def label(text: str, longest: int = 63) -> str:
    """Return a text as small letters, digits and dashes."""
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower())[:longest]
    return safe.strip("-")


#
# What all engines use
#


def check_jobs(units: Sequence[WorkUnit], check: Callable[[WorkUnitJob], Any]) -> None:
    """Call a check with each job; its errors begin with the work unit and the job."""
    for unit in units:
        for job in unit.jobs.values():
            with error_prefix(f"Work unit {unit.wid}, job {job.name!r}: "):
                check(job)


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
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)()


def executor_from_json(data: Mapping[str, Any]) -> Executor:
    """Return the engine that a record describes."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data.get("fields", {}).items()
    }
    return type(executor_of(data["type"]))(**fields)
