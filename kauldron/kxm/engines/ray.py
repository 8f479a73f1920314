"""`Ray`: jobs of a Ray cluster, through its job API.

The launcher keeps watching, as with local processes: it submits a job when the jobs it
comes after are done, and again if it is to be restarted. It uses the scheduler of
`Local`, with Ray jobs in place of processes. The folder of the experiment has to be on
a file system that all nodes share.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.kxm import records
from kauldron.kxm.engines.executor import check_jobs, runner_command, unfinished
from kauldron.kxm.engines.local import Machine
from kauldron.kxm.engines.scheduler import ScheduledExecutor, Scheduler, Task
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle

_ASK_SECONDS = 1.0
_STATES = {
    "PENDING": records.PENDING,
    "RUNNING": records.RUNNING,
    "STOPPED": records.STOPPED,
    "FAILED": records.FAILED,
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Ray(ScheduledExecutor):
    """Submits each job of each work unit to a Ray cluster, and watches.

    Attributes:
      address: Of the cluster's dashboard, such as `http://head:8265`; by default
        `RAY_ADDRESS`, or the cluster on this machine.
      num_cpus: CPUs of each job, unless its `requirements.cpu` says otherwise.
      resources: Custom resources of each job: `{"fast_disk": 1}`.
      working_dir: A folder that Ray copies to the nodes, where jobs start.
      max_parallel: How many jobs run at once; by default as many as the cluster has room
        for. Evaluators beside a training are not counted.
      backoff_s: How long to wait before a job is started again; doubled each time.
      fail_fast: Whether the first failure stops all other work units.
      stream: Whether to show what the program prints; by default if there is only one.

    Example:
      >>> Ray(address="http://head:8265", num_cpus=4).max_restarts
      3
    """

    address: str | None = None
    num_cpus: float = 1.0
    resources: Mapping[str, float] = dataclasses.field(default_factory=dict)
    working_dir: str | None = None

    def validate(self, units: Sequence[WorkUnit]) -> None:
        check_jobs(units, _check)
        if importlib.util.find_spec("ray") is None:
            raise ImportError("The Ray engine needs ray: pip install 'kauldron[ray]'")
        self.client()

    def client(self) -> Any:
        """Return Ray's client for jobs.

        Raises:
          ValueError: No cluster answers.
        """
        from ray.job_submission import JobSubmissionClient

        try:
            return JobSubmissionClient(self.address)
        except (ConnectionError, RuntimeError) as error:
            where = self.address or os.environ.get("RAY_ADDRESS") or "this machine"
            raise ValueError(
                f"No Ray cluster answers at {where}: {error} Set --xp.executor.address="
                "http://<head>:8265, or start one with `ray start --head`."
            ) from error

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        handle.session = RayScheduler(self, units, Cluster(self.client()))
        handle.session.start()

    def submission(self, unit: WorkUnit, job: WorkUnitJob) -> dict[str, Any]:
        """Return the arguments of `JobSubmissionClient.submit_job`, without the id."""
        wanted = job.requirements
        arguments = {
            "entrypoint": shlex.join(runner_command(unit, job.name)),
            "entrypoint_num_cpus": wanted.cpu or self.num_cpus,
            "entrypoint_num_gpus": job.gpus,
            "entrypoint_memory": wanted.ram,
            "entrypoint_resources": dict(self.resources) or None,
            "runtime_env": {"working_dir": self.working_dir}
            if self.working_dir
            else {},
            "metadata": {"xid": str(unit.xid), "wid": str(unit.wid), "job": job.name},
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def submission_text(self, unit: WorkUnit, job: WorkUnitJob) -> str:
        lines = [f"{k}={v!r}" for k, v in self.submission(unit, job).items()]
        return "submit_job(\n  " + ",\n  ".join(lines) + ",\n)"

    #
    # From other processes than the launcher
    #

    def poll(
        self, handle: ExperimentHandle
    ) -> Mapping[tuple[int, str], tuple[str, str | None]]:
        if records.is_locked(handle.xp_dir):
            return {}  # the launcher knows
        asked = {
            status["engine_id"]: (unit, name)
            for unit in handle.work_units
            for name, status in unit.jobs.items()
            if status["state"] not in records.FINAL and status.get("engine_id")
        }
        if not asked or importlib.util.find_spec("ray") is None:
            return {}
        try:
            cluster = Cluster(self.client())
        except ValueError:
            return {}
        found: dict[tuple[int, str], tuple[str, str | None]] = {}
        for job_id, (unit, name) in asked.items():
            state = _STATES.get(cluster.status(job_id) or "")
            # A runner writes its final status, if it can, before Ray sees it end.
            now = records.read_status(unit.folder, name)["state"]
            if state and now not in records.FINAL:
                reason = f"{state} in Ray" if state in records.FINAL else None
                found[unit.wid, name] = (state, reason)
        return found

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        cluster = None
        for unit, job in unfinished(units):
            status = records.read_status(unit.folder, job.name)
            if status["state"] != records.PENDING:
                continue  # the runner sees the request
            if status.get("engine_id"):
                cluster = cluster or Cluster(self.client())
                if cluster.status(status["engine_id"]) == "RUNNING":
                    continue  # as before
                cluster.stop(status["engine_id"])
            if not records.is_locked(handle.xp_dir):
                unit.set_state(job.name, records.STOPPED)


def _check(job: WorkUnitJob) -> None:
    """Refuse a job that can never run."""
    if (job.requirements.replicas or 1) > 1:
        raise ValueError(
            f"{job.requirements.replicas} nodes are asked for, but a Ray job has one; Slurm "
            "and Kubernetes have several: --xp.executor=slurm"
        )
    accelerator = job.accelerator
    if accelerator is not None and accelerator.kind == "tpu":
        raise ValueError(
            f"platform={job.platform!r}: ask for TPUs by what the cluster calls them, "
            "such as Ray(resources={'TPU': 4})."
        )


#
# The cluster
#


class Cluster:
    """The jobs of a Ray cluster; asks for all at once, and not too often."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._jobs: dict[str, Any] = {}
        self._known: set[str] = set()
        self._asked_at = -_ASK_SECONDS

    def status(self, job_id: str) -> str | None:
        """Return what Ray says: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED.

        A job that the cluster has forgotten, because its head was restarted, has failed.
        """
        if time.monotonic() - self._asked_at > _ASK_SECONDS:
            try:
                jobs = self.client.list_jobs()
            except OSError:
                return None  # the head does not answer at the moment
            self._jobs = {job.submission_id: job for job in jobs}
            self._known |= set(self._jobs)
            self._asked_at = time.monotonic()
        job = self._jobs.get(job_id)
        if job is None:
            return "FAILED" if job_id in self._known else None
        return str(job.status.value)

    def exit_code(self, job_id: str) -> int:
        """Return the code of a runner that has ended."""
        code = getattr(self._jobs.get(job_id), "driver_exit_code", None)
        if code is None:
            return 0 if self.status(job_id) == "SUCCEEDED" else 1
        return code

    def stop(self, job_id: str) -> None:
        """Take a job out of the queue, or end it."""
        self.client.stop_job(job_id)


@dataclasses.dataclass(frozen=True)
class RayJob:
    """A Ray job with the methods of a process that the scheduler uses."""

    cluster: Cluster
    job_id: str

    def poll(self) -> int | None:
        status = self.cluster.status(self.job_id)
        if status in ("STOPPED", "SUCCEEDED", "FAILED"):
            return self.cluster.exit_code(self.job_id)
        return None

    def kill(self) -> None:
        self.cluster.stop(self.job_id)

    terminate = kill


class _ClusterMachine(Machine):
    """A machine without limits: Ray itself shares out what there is."""

    def gpus_for(self, job: WorkUnitJob) -> int:
        del job
        return 0


class RayScheduler(Scheduler):
    """Runs the unfinished jobs of work units on a cluster."""

    def __init__(self, ray: Ray, units: Sequence[WorkUnit], cluster: Cluster) -> None:
        machine = _ClusterMachine(gpus=(), cores=sys.maxsize, memory=sys.maxsize)
        super().__init__(ray, units, machine)
        self.ray = ray
        self.cluster = cluster

    def _start_runner(self, task: Task, rank: int, env: dict[str, str]) -> RayJob:
        del rank
        unit, job = task.unit, task.job
        attempt = env["KXM_NEXT_ATTEMPT"]
        name = f"kd-{unit.xid}-{unit.wid}-{job.name}-{attempt}"
        job_id = (
            f"{name}-{uuid.uuid4().hex[:8]}"  # ids of other registries are the same
        )
        arguments = self.ray.submission(unit, job)
        own = {
            "KXM_ENGINE": "ray",
            "KXM_ENGINE_ID": job_id,
            "KXM_NEXT_ATTEMPT": attempt,
        }
        arguments["runtime_env"] = {**arguments["runtime_env"], "env_vars": own}
        records.write_status(unit.folder, job.name, engine="ray", engine_id=job_id)
        self.cluster.client.submit_job(submission_id=job_id, **arguments)
        return RayJob(self.cluster, job_id)

    def _settle(self, task: Task) -> None:
        status = records.read_status(task.unit.folder, task.job.name)
        was_stopped = self.cluster.status(status["engine_id"]) == "STOPPED"
        if was_stopped and status["state"] not in records.FINAL:
            self._end(task, records.STOPPED)
        else:
            super()._settle(task)

    def _tell_to_stop(self, task: Task) -> None:
        super()._tell_to_stop(task)
        for job in task.processes:  # nobody sees the request for a job that is queued
            if self.cluster.status(job.job_id) == "PENDING":
                self.cluster.stop(job.job_id)
