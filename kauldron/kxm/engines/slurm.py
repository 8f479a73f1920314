"""`Slurm`: job arrays on a cluster, through submitit.

The folder of the experiment has to be on a file system that all nodes share. `slurm_job.py`
is what runs inside the jobs, `slurm_queue.py` what Slurm is asked and told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kauldron.errors import did_you_mean
from kauldron.kxm import records
from kauldron.kxm.engines.executor import (
    Executor,
    check_jobs,
    runner_command,
    unfinished,
)
from kauldron.kxm.engines.slurm_job import SlurmTask
from kauldron.kxm.engines.slurm_queue import (
    base_ids,
    cancel,
    max_array_size,
    queue_states,
    run,
)
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.jobs import JobRequirements

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle, WorkUnitHandle

Unit = TypeVar("Unit", "WorkUnit", "WorkUnitHandle")
Member = tuple[WorkUnit, WorkUnitJob]

_OURS = ("array", "dependency", "requeue", "signal")
_SETUP = ("export SUBMITIT_PREEMPT_SIGNAL=TERM",)
# One process that ends badly must not look like a preemption to the others.
_SRUN_ARGS = ("--kill-on-bad-exit=0",)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Slurm(Executor):
    """Submits one job array for each job of the experiment.

    Jobs that are preempted or reach their time limit save, are requeued, and go on. The
    launcher may end after the submission.

    Attributes:
      partition: Where to run; by default the cluster's default partition.
      account: Who pays.
      qos: The quality of service.
      time_limit: Minutes, or texts such as `2h` and `1-12:00:00`; by default the limit of
        the partition. A job that needs longer is requeued.
      nodes: Nodes of each job; by default the job's `requirements.replicas`, or 1.
      tasks_per_node: Processes on each node, joined by `jax.distributed`. One process uses
        all GPUs of its node.
      gpus_per_node: By default as many as the job's `platform` says.
      cpus_per_task: By default the job's `requirements.cpu`.
      mem: Memory of each node: bytes, or texts such as `64GB`; by default the job's
        `requirements.ram`.
      constraint: Features that the nodes must have.
      nodelist: Nodes to use.
      exclude: Nodes to avoid.
      gpu_type_as_gres: Whether to ask for the type in `platform="a100=8"` by name.
      max_parallel: How many tasks of an array run at once.
      signal_delay_s: How long before the time limit the program is told to save.
      max_requeues: How often a job may go on after a preemption or time limit.
      setup: Lines of shell that run before the job.
      srun_args: Further arguments of `srun`.
      extra: Further options of `sbatch`: `{"mail-type": "FAIL"}`.

    Example:
      >>> Slurm(partition="gpu", time_limit="8h", max_parallel=16).signal_delay_s
      120
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit: int | str | None = None
    nodes: int | None = None
    tasks_per_node: int = 1
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    mem: int | str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    gpu_type_as_gres: bool = False
    max_parallel: int = 64
    signal_delay_s: int = 120
    max_requeues: int = 100
    setup: Sequence[str] = ()
    srun_args: Sequence[str] = ()
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    grace_s: float = 90.0

    def __post_init__(self) -> None:
        super().__post_init__()
        JobRequirements(ram=self.mem, time_limit=self.time_limit)  # can be read
        if self.grace_s > self.signal_delay_s:
            raise ValueError(
                f"Slurm(grace_s={self.grace_s:g}): programs are told to save "
                f"signal_delay_s={self.signal_delay_s} seconds before the time limit, and "
                "killed there. Set signal_delay_s to at least grace_s."
            )
        self._check_positive("nodes", "tasks_per_node", "max_parallel")
        for name in self.extra:
            if name.replace("_", "-") in _OURS:
                raise ValueError(
                    f"Slurm(extra={{{name!r}: ...}}): kxm sets this option itself; leave it out."
                )

    def validate(self, units: Sequence[WorkUnit]) -> None:
        if shutil.which("sbatch") is None:
            raise ValueError(
                "There is no `sbatch` on PATH: this machine is not part of a Slurm "
                "cluster. Launch from a login node, or use --xp.executor=local."
            )
        if importlib.util.find_spec("submitit") is None:
            raise ImportError(
                "The Slurm engine needs submitit: pip install 'kauldron[slurm]'"
            )
        partitions = self._partitions
        if self.partition is not None and partitions:
            for name in self.partition.split(","):
                if name not in partitions:
                    raise ValueError(
                        f"There is no partition {name!r}."
                        f"{did_you_mean(name, list(partitions))} Known: "
                        f"{', '.join(partitions)}."
                    )
        check_jobs(units, self.options)

    #
    # What to ask for
    #

    def options(self, job: WorkUnitJob) -> dict[str, Any]:
        """Return the options of `sbatch` for a job.

        Raises:
          ValueError: The engine and the job ask for different things.
        """
        wanted = job.requirements
        mine = JobRequirements(ram=self.mem, time_limit=self.time_limit)
        accelerator = job.accelerator
        if accelerator is not None and accelerator.kind == "tpu":
            raise ValueError(f"platform={job.platform!r}: Slurm has no TPUs.")
        cpus = None if wanted.cpu is None else math.ceil(wanted.cpu)
        gpus: Any = _agreed("gpus_per_node", self.gpus_per_node, job.gpus)
        if gpus and self.gpu_type_as_gres and accelerator and accelerator.name != "gpu":
            gpus = f"{accelerator.name}:{gpus}"
        memory = _agreed("mem", mine.ram, wanted.ram)
        minutes = _agreed("time_limit", mine.time_limit, wanted.time_limit)
        chosen = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self._partition_minutes if minutes is None else minutes,
            "nodes": _agreed("nodes", self.nodes, wanted.replicas) or 1,
            "ntasks-per-node": self.tasks_per_node,
            "gpus-per-node": gpus or None,
            "cpus-per-task": _agreed("cpus_per_task", self.cpus_per_task, cpus),
            "mem": memory and f"{math.ceil(memory / 2**20)}M",
            "constraint": self.constraint,
            "nodelist": self.nodelist,
            "exclude": self.exclude,
            "signal": f"TERM@{self.signal_delay_s}",
            "requeue": True,
        }
        options = {name: value for name, value in chosen.items() if value is not None}
        more = {name.replace("_", "-"): value for name, value in self.extra.items()}
        return {**options, **more}

    @functools.cached_property
    def _partitions(self) -> dict[str, str]:
        """The time limits of the cluster's partitions, the default partition first."""
        done = run("sinfo", "-h", "-a", "-o", "%P %l")
        lines = [line.split() for line in done.stdout.splitlines()]
        lines.sort(key=lambda words: not words[0].endswith("*"))
        return {name.removesuffix("*"): limit for name, limit in lines}

    @property
    def _partition_minutes(self) -> int:
        """The time limit of the partition in minutes; 0 is none."""
        names = self.partition.split(",") if self.partition else self._partitions
        limit = self._partitions.get(next(iter(names), ""))
        if limit is None:
            raise ValueError(
                "Slurm does not tell how long jobs may run here: set `time_limit`, such "
                "as '2h'."
            )
        return slurm_minutes(limit)

    def submission_text(self, unit: WorkUnit, job: WorkUnitJob) -> str:
        options = {**self.options(job), "job-name": _job_name(unit, job)}
        lines = ["#!/bin/bash"]
        for name, value in options.items():
            text = "" if value is True else f"={shlex.quote(str(value))}"
            lines.append(f"#SBATCH --{name}{text}")
        srun = ["srun", *_SRUN_ARGS, *self.srun_args, *runner_command(unit, job.name)]
        return "\n".join([*lines, *self.setup, shlex.join(srun)])

    #
    # Submission
    #

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        folder = records.private(handle.xp_dir) / "slurm"
        folder.mkdir(parents=True, exist_ok=True)
        ids: dict[tuple[int, str], str] = {}
        try:
            for array in plan_arrays(units, self.options, max_array_size()):
                ids |= self._submit_array(array, ids, folder)
            _write_ids(handle, {**_read_ids(handle), **ids})
        except BaseException:
            cancel(ids.values())
            raise

    def _submit_array(
        self, array: Array, ids: Mapping[tuple[int, str], str], folder: pathlib.Path
    ) -> dict[tuple[int, str], str]:
        submitit = _import_submitit()
        from submitit.core.utils import FailedJobError

        unit, job = array.members[0]
        options = array.options
        dependency = array.dependency(ids)
        if dependency:
            waiting = {"dependency": dependency, "kill-on-invalid-dep": "yes"}
            options = {**options, **waiting}
        executor = submitit.SlurmExecutor(folder=folder / "%j")
        executor.update_parameters(
            job_name=_job_name(unit, job),
            setup=[*_SETUP, *self.setup],
            srun_args=[*_SRUN_ARGS, *self.srun_args],
            array_parallelism=self.max_parallel,
            additional_parameters=options,
        )
        tasks = [self._task(*member) for member in array.members]
        try:
            with _outside_of_jobs(), executor.batch():
                submitted = [executor.submit(task) for task in tasks]
        except FailedJobError as error:
            scripts = sorted(folder.glob(".submission_file_*.sh"), key=os.path.getmtime)
            raise RuntimeError(
                f"Slurm refused {job.name!r}: {error}. The script is {scripts[-1]}."
            ) from error
        return {key: one.job_id for key, one in zip(array.keys, submitted)}

    def _task(self, unit: WorkUnit, job: WorkUnitJob) -> SlurmTask:
        status = records.read_status(unit.folder, job.name)
        return SlurmTask(
            folder=str(unit.folder),
            job=job.name,
            first_attempt=status["attempt"] + 1,
            max_requeues=self.max_requeues,
        )

    #
    # Afterwards
    #

    def poll(
        self, handle: ExperimentHandle
    ) -> Mapping[tuple[int, str], tuple[str, str | None]]:
        asked = _unfinished_ids(handle, handle.work_units)
        known = queue_states(list(asked))
        found: dict[tuple[int, str], tuple[str, str | None]] = {}
        for job_id, (unit, name) in asked.items():
            # A runner writes its final status, if it can, before Slurm sees it end.
            if job_id in known and not _is_final(unit, name):
                found[unit.wid, name] = known[job_id]
        return found

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        jobs = _unfinished_ids(handle, units)
        cancel(jobs, "--state=PENDING")
        known = queue_states(list(jobs))
        for job_id, (unit, name) in jobs.items():
            is_over = known.get(job_id, ("", None))[0] in records.FINAL
            if is_over and not _is_final(unit, name):
                unit.set_state(name, records.STOPPED)


# The ids of jobs are in one file, which only launchers write: the status of a job belongs
# to its runner, which may have started before `sbatch` has returned.


def _ids_path(handle: ExperimentHandle) -> pathlib.Path:
    return records.private(handle.xp_dir) / "slurm" / "jobs.json"


def _read_ids(handle: ExperimentHandle) -> dict[tuple[int, str], str]:
    data = records.read_json(_ids_path(handle), {"schema": records.SCHEMA, "jobs": []})
    return {(wid, job): job_id for wid, job, job_id in data["jobs"]}


def _write_ids(handle: ExperimentHandle, ids: Mapping[tuple[int, str], str]) -> None:
    jobs = [(*key, job_id) for key, job_id in ids.items()]
    records.write_json(_ids_path(handle), {"schema": records.SCHEMA, "jobs": jobs})


def _unfinished_ids(
    handle: ExperimentHandle, units: Sequence[Unit]
) -> dict[str, tuple[Unit, str]]:
    """Return the jobs that were submitted and are not final, by their ids in Slurm."""
    ids = _read_ids(handle)
    return {
        ids[unit.wid, name]: (unit, name)
        for unit in units
        for name in unit.jobs
        if (unit.wid, name) in ids and not _is_final(unit, name)
    }


def _is_final(unit: WorkUnit | WorkUnitHandle, job: str) -> bool:
    return records.read_status(unit.folder, job)["state"] in records.FINAL


def _agreed(name: str, mine: Any, of_job: Any) -> Any:
    """Return what the engine or the job asks for; both may if it is the same."""
    if mine is not None and of_job is not None and mine != of_job:
        raise ValueError(
            f"Slurm({name}={mine!r}), but the job asks for {of_job!r}: set only one of "
            "them."
        )
    return of_job if mine is None else mine


def slurm_minutes(limit: str) -> int:
    """Read a time limit as Slurm prints it; 0 if there is none.

    Example:
      >>> [slurm_minutes(text) for text in ("infinite", "30:00", "2:00:00", "1-00:00:00")]
      [0, 30, 120, 1440]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return days * 1440 + hours * 60 + minutes + (seconds > 0)


def _job_name(unit: WorkUnit, job: WorkUnitJob) -> str:
    return f"kd-{unit.xid}-{job.name}"


@contextlib.contextmanager
def _outside_of_jobs() -> Iterator[None]:
    """Hide the variables of a Slurm job that the launcher itself runs in."""
    hidden = {}
    if "SLURM_JOB_ID" in os.environ:
        names = [
            name for name in os.environ if name.startswith(("SLURM_", "SUBMITIT_"))
        ]
        hidden = {name: os.environ.pop(name) for name in names if name != "SLURM_CONF"}
    try:
        yield
    finally:
        os.environ.update(hidden)


#
# Arrays
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """Jobs of one name with the same options, submitted together.

    Attributes:
      members: The jobs.
      options: Of `sbatch`.
      needs: The other jobs of each work unit that have to succeed before.
    """

    members: list[Member]
    options: dict[str, Any]
    needs: tuple[str, ...] = ()

    @property
    def keys(self) -> list[tuple[int, str]]:
        """Work unit and name of each job."""
        return [(unit.wid, job.name) for unit, job in self.members]

    def dependency(self, ids: Mapping[tuple[int, str], str]) -> str:
        """Return the option that lets each job wait for those of its work unit."""
        wid = self.keys[0][0]
        if len(self.members) == 1:
            return ",".join(f"afterok:{ids[wid, need]}" for need in self.needs)
        arrays = base_ids(ids[wid, need] for need in self.needs)
        return ",".join(f"aftercorr:{array}" for array in arrays)


def plan_arrays(
    units: Sequence[WorkUnit], options_of: Any, max_size: int
) -> list[Array]:
    """Return the arrays that the unfinished jobs of work units make, in order.

    Task i of an array can wait for task i of another one. Where the work units of the two
    are not the same, each job becomes an array of its own.
    """
    arrays: list[Array] = []
    place: dict[tuple[int, str], tuple[int, int]] = {}  # array and index in it
    jobs = sorted(unfinished(units), key=lambda member: _depth(*member))
    groups: dict[Any, list[Member]] = {}
    for unit, job in jobs:
        key = (_depth(unit, job), job.name, json.dumps(options_of(job), default=str))
        groups.setdefault(key, []).append((unit, job))
    for members in groups.values():
        options = options_of(members[0][1])
        split: dict[Any, list[Member]] = {}
        for unit, job in members:
            needs = _needs(unit, job)
            before = tuple(place[unit.wid, need][0] for need in needs)
            split.setdefault((needs, before), []).append((unit, job))
        for (needs, before), part in split.items():
            indices = [[place[u.wid, need][1] for u, _ in part] for need in needs]
            sizes = [len(arrays[number].members) for number in before]
            is_same = all(index == list(range(len(part))) for index in indices)
            is_same = is_same and all(size == len(part) for size in sizes)
            size = max_size if is_same else 1
            for start in range(0, len(part), size):
                chunk = part[start : start + size]
                for index, (unit, job) in enumerate(chunk):
                    place[unit.wid, job.name] = (len(arrays), index)
                arrays.append(Array(members=chunk, options=options, needs=needs))
    return arrays


def _needs(unit: WorkUnit, job: WorkUnitJob) -> tuple[str, ...]:
    """Return the jobs that have to succeed first; the runner waits for those to start."""
    return tuple(
        other
        for other, what in job.after.items()
        if what == "succeeded" and unit.state_of(other) != records.SUCCEEDED
    )


def _depth(unit: WorkUnit, job: WorkUnitJob) -> int:
    return max((1 + _depth(unit, unit.jobs[name]) for name in job.after), default=0)


def _import_submitit() -> Any:
    """Import submitit, which would configure the logging of the whole process.

    That closes the files of all handlers that there are.
    """
    is_set = "SUBMITIT_LOG_LEVEL" in os.environ
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    finally:
        if not is_set:
            del os.environ["SUBMITIT_LOG_LEVEL"]
    return submitit
