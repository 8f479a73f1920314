"""What runs inside a Slurm job: the runner of a kxm job, and the requeue after it.

submitit loads a `SlurmTask` in each process of the Slurm job and calls it. The runner works
in that very process, so there is one signal handler, the runner's, which only sets a flag.
Slurm sends SIGTERM to every process, before the time limit as well as on preemption; the
program saves and exits with 143, the runner writes `pending`, and then, with nothing left
to lose, the first process asks Slurm to requeue the job. Slurm sends another SIGTERM for
that, which finds the same handler.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from kauldron.kxm import records
from kauldron.kxm.engines.work_units import WorkUnit
from kauldron.kxm.runner import PREEMPTED, Runner

_END_SECONDS = 60.0  # how long Slurm may take to end a job that it was told to end
_TICK_SECONDS = 0.2
_FIRST_PORT, _NUM_PORTS = 61440, 4096  # above those that the kernel gives to clients


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmTask:
    """A job of a work unit, as submitit stores and calls it.

    Attributes:
      folder: The folder of the work unit.
      job: The name of the job.
      first_attempt: The number of the attempt that Slurm starts first.
      max_requeues: How often Slurm may be asked to start it again.
    """

    folder: str
    job: str
    first_attempt: int
    max_requeues: int

    def __call__(self) -> None:
        attempt = self.first_attempt + _restarts(os.environ)
        for name in ("KXM_NUM_PROCESSES", "KXM_PROCESS_ID"):  # of an outer job
            os.environ.pop(name, None)
        os.environ.update(process_environment(os.environ, _first_address))
        os.environ |= {
            "KXM_NEXT_ATTEMPT": str(attempt),
            "KXM_ENGINE": "slurm",
            "KXM_ENGINE_ID": engine_id(os.environ),
        }
        runner = Runner(pathlib.Path(self.folder), self.job)
        code = runner.run()
        if runner.rank == 0:
            self._conclude(runner)
        elif code == PREEMPTED:
            # Leaving before the first process might end that one as well.
            runner.was_signalled = False
            _wait_for_sigterm(runner, lambda: self._state() in records.FINAL)
        if code:
            sys.exit(code)

    def checkpoint(self) -> Any:
        """Say whether to go on later, if SIGTERM comes before the runner handles it.

        Returns:
          What submitit stores before it requeues the job; `None` if it is not to.
        """
        from submitit.helpers import DelayedSubmission

        is_running = _job_info().get("JobState") == "RUNNING"
        return DelayedSubmission(self) if is_running else None

    def _state(self) -> str:
        return records.read_status(self.folder, self.job)["state"]

    def _conclude(self, runner: Runner) -> None:
        """Ask for another attempt if the runner wants one, and nobody objects."""
        if self._state() != records.PENDING:
            return
        unit = WorkUnit.read(self.folder)
        if records.is_stop_requested(self.folder):
            unit.set_state(self.job, records.STOPPED)
            return
        before = _restarts(os.environ)
        info = _job_info()
        if int(info.get("Restarts", 0)) > before:
            return  # Slurm has requeued it already
        if info.get("JobState") != "RUNNING":
            # Requeueing would undo what the user did.
            unit.set_state(self.job, records.STOPPED, reason="cancelled in Slurm")
        elif before >= self.max_requeues:
            reason = f"requeued {before} times; max_requeues is {self.max_requeues}"
            unit.set_state(self.job, records.FAILED, reason=reason)
        else:
            self._requeue(unit, runner)

    def _requeue(self, unit: WorkUnit, runner: Runner) -> None:
        runner.was_signalled = False
        command = ["scontrol", "requeue", engine_id(os.environ)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = f"{' '.join(command)}: {done.stderr.strip()}"
            unit.set_state(self.job, records.FAILED, reason=reason)
            return
        _wait_for_sigterm(runner)


def process_environment(
    environment: Mapping[str, str], first_address: Callable[[str], str]
) -> dict[str, str]:
    """Return the variables by which the processes of a job find each other.

    Where there is one process on each node it gets all GPUs of the node; jax alone would
    take one for each process that Slurm starts.

    Args:
      environment: That of the process.
      first_address: From a list of nodes to the address of the first.

    Example:
      >>> slurm = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}
      >>> slurm |= {"SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n[1-2]"}
      >>> slurm |= {"SLURM_JOB_ID": "17", "CUDA_VISIBLE_DEVICES": "0,1"}
      >>> for name, value in process_environment(slurm, lambda _: "10.0.0.1").items():
      ...     print(f"{name}={value}")
      KXM_NUM_PROCESSES=2
      KXM_PROCESS_ID=1
      JAX_COORDINATOR_ADDRESS=10.0.0.1:61457
      JAX_LOCAL_DEVICE_IDS=0,1
    """
    count = int(environment.get("SLURM_STEP_NUM_TASKS") or 1)
    if count == 1:
        return {}
    found = {
        "KXM_NUM_PROCESSES": str(count),
        "KXM_PROCESS_ID": environment["SLURM_PROCID"],
    }
    if "JAX_COORDINATOR_ADDRESS" not in environment:
        address = first_address(environment["SLURM_STEP_NODELIST"])
        port = _FIRST_PORT + int(environment["SLURM_JOB_ID"]) % _NUM_PORTS
        found["JAX_COORDINATOR_ADDRESS"] = f"{address}:{port}"
    gpus = [
        gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu
    ]
    is_one_per_node = count == int(environment.get("SLURM_STEP_NUM_NODES") or 1)
    if gpus and is_one_per_node and "JAX_LOCAL_DEVICE_IDS" not in environment:
        found["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(len(gpus))))
    return found


def _first_address(nodes: str) -> str:
    """Return where Slurm itself reaches a node; its name need not be known elsewhere."""
    first = _output("scontrol", "show", "hostnames", nodes).split()[0]
    return _fields(_output("scontrol", "-o", "show", "node", first))["NodeAddr"]


def engine_id(environment: Mapping[str, str]) -> str:
    """Return the id of the job in Slurm; the plain one may stand for the whole array.

    Example:
      >>> engine_id({"SLURM_JOB_ID": "8"})
      '8'
      >>> array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
      >>> engine_id({"SLURM_JOB_ID": "8", **array})
      '7_1'
    """
    if "SLURM_ARRAY_JOB_ID" in environment:
        array = environment["SLURM_ARRAY_JOB_ID"]
        return f"{array}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment["SLURM_JOB_ID"]


def _fields(line: str) -> dict[str, str]:
    """Read the `Name=value` pairs that `scontrol -o` prints."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _restarts(environment: Mapping[str, str]) -> int:
    return int(environment.get("SLURM_RESTART_COUNT") or 0)


def _job_info() -> dict[str, str]:
    job = engine_id(os.environ)
    return _fields(_output("scontrol", "-o", "show", "job", job))


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _wait_for_sigterm(
    runner: Runner, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Stay until Slurm tells the process to end, or another reason to leave comes."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline and not runner.was_signalled and not is_over():
        time.sleep(_TICK_SECONDS)
