"""`Local`: processes on this machine, as many at once as it has cores or devices for."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kauldron.kxm import records
from kauldron.kxm.engines.executor import check_jobs
from kauldron.kxm.engines.scheduler import ScheduledExecutor, Scheduler
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle

_log = logging.getLogger("kauldron.kxm")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Local(ScheduledExecutor):
    """Runs jobs as processes on this machine.

    Programs see SIGTERM when they are to save and stop: after Ctrl-C, after
    `kauldron xp stop`, and when the launcher dies. Ctrl-C twice kills them.

    Attributes:
      max_parallel: How many jobs run at once; by default as many as there are GPUs or
        cores for. Evaluators beside a training are not counted.
      gpus: The ids of the GPUs to use, or their number; by default all visible ones.
      backoff_s: How long to wait before a job is started again; doubled each time.
      fail_fast: Whether the first failure stops all other work units.
      processes: How many processes each job has, joined by `jax.distributed`.
      stream: Whether to show what the program prints; by default if there is only one.

    Example:
      >>> Local(max_parallel=2, restart="on_failure").max_restarts
      3
    """

    gpus: int | Sequence[int] | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("processes")

    def validate(self, units: Sequence[WorkUnit]) -> None:
        machine = Machine.here(self.gpus)
        machine.warn_of_other_gpus(units)
        check_jobs(units, machine.check)

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        machine = Machine.here(self.gpus)
        handle.session = Scheduler(self, units, machine, processes=self.processes)
        handle.session.start()

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        if records.is_locked(handle.xp_dir):
            return  # the launcher sees the request
        for unit in units:
            for name in unit.jobs:
                if unit.state_of(name) == records.PENDING:
                    unit.set_state(name, records.STOPPED)


#
# The machine
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is to share.

    Attributes:
      gpus: The ids of the GPUs.
      gpu_names: What the driver calls them; empty if nobody asked it.
      cores: The number of cores.
      memory: In bytes.
    """

    gpus: tuple[str, ...]
    gpu_names: str = ""
    cores: int
    memory: int

    @classmethod
    def here(cls, gpus: int | Sequence[int] | None = None) -> Machine:
        """Look at this machine, without jax.

        Args:
          gpus: The ids of the GPUs to use, or their number.
        """
        ids, names = _visible_gpus()
        if isinstance(gpus, int):
            ids = tuple(map(str, range(gpus))) if len(ids) < gpus else ids[:gpus]
        elif gpus is not None:
            ids = tuple(map(str, gpus))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cores = len(os.sched_getaffinity(0))
        return cls(gpus=ids, gpu_names=names, cores=cores, memory=memory)

    def gpus_for(self, job: WorkUnitJob) -> int:
        """Return how many GPUs a job gets; all of them if it does not say."""
        accelerator = job.accelerator
        if accelerator is not None and accelerator.kind == "tpu":
            return 0
        return len(self.gpus) if job.gpus is None else job.gpus

    def cores_for(self, job: WorkUnitJob) -> int:
        """Return how many cores a job occupies."""
        return max(1, math.ceil(job.requirements.cpu or 1))

    def check(self, job: WorkUnitJob) -> None:
        """Refuse a job that can never run here."""
        wanted = job.requirements
        accelerator = job.accelerator
        if accelerator is not None and accelerator.kind == "tpu":
            if accelerator.name != "tpu":
                raise ValueError(
                    f"platform={job.platform!r}: this engine has no such device. Set "
                    "--xp.platform=gpu=1, or --xp.platform=tpu for the TPU of this host."
                )
        elif (job.gpus or 0) > len(self.gpus):
            raise ValueError(
                f"it asks for {job.gpus} GPUs, but this machine has {len(self.gpus)}."
            )
        if wanted.cpu is not None and wanted.cpu > self.cores:
            raise ValueError(
                f"it asks for {wanted.cpu} cores, but this machine has {self.cores}."
            )
        if wanted.ram is not None and wanted.ram > self.memory:
            raise ValueError(
                f"it asks for {wanted.ram / 1e9:.1f} GB of memory, but this machine has "
                f"{self.memory / 1e9:.1f} GB."
            )
        if (wanted.replicas or 1) > 1:
            raise ValueError(
                f"it asks for {wanted.replicas} nodes, but this engine has one. Use "
                f"--xp.executor.processes={wanted.replicas}, or --xp.executor=slurm."
            )

    def warn_of_other_gpus(self, units: Sequence[WorkUnit]) -> None:
        """Warn if jobs ask for a type of GPU that the driver does not name."""
        wanted = {job.accelerator for unit in units for job in unit.jobs.values()}
        for accelerator in wanted:
            if accelerator is None or accelerator.kind != "gpu" or not self.gpu_names:
                continue
            name = accelerator.name.lower()
            if name != "gpu" and name not in self.gpu_names.lower():
                _log.warning(
                    "A job asks for %s, but the GPUs of this machine are %s.",
                    accelerator.name,
                    self.gpu_names,
                )

    def environment(self, job: WorkUnitJob, gpus: Sequence[str]) -> Mapping[str, str]:
        """Return the variables that give a job its devices."""
        accelerator = job.accelerator
        is_cpu = accelerator is not None and accelerator.kind == "cpu"
        if is_cpu or self.gpus:
            return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        return {}


def _visible_gpus() -> tuple[tuple[str, ...], str]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(gpu for gpu in given.split(",") if gpu and gpu != "-1"), ""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=2, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (), ""
    lines = [line for line in listed.splitlines() if line.startswith("GPU ")]
    return tuple(map(str, range(len(lines)))), listed
