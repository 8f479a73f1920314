"""`SkyPilot`: task files of managed jobs, written as JSON and launched if you like.

The folder of the experiment has to be on a volume or bucket that the nodes mount at the
same path: the runner on each node reads its command there, and writes log and status.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kauldron.kxm.engines.executor import (
    COORDINATOR_PORT,
    ManifestExecutor,
    check_jobs,
    object_name,
    runner_command,
)
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.runner import PREEMPTED

_log = logging.getLogger(__name__)

_RANKS = f"""\
export KXM_NUM_PROCESSES="$SKYPILOT_NUM_NODES"
export KXM_PROCESS_ID="$SKYPILOT_NODE_RANK"
export JAX_COORDINATOR_ADDRESS="$(echo "$SKYPILOT_NODE_IPS" | head -n 1):{COORDINATOR_PORT}"
"""
# From our names of TPUs to those of slices, which count chips or the two cores of each.
_TPUS = {
    "v2": ("tpu-v2", 2),
    "v3": ("tpu-v3", 2),
    "v4": ("tpu-v4", 2),
    "v5p": ("tpu-v5p", 2),
    "v5e": ("tpu-v5litepod", 1),
    "v6e": ("tpu-v6e", 1),
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SkyPilot(ManifestExecutor):
    """Writes one task for each job, to `.kxm/sky` in the experiment's folder.

    They are managed jobs: SkyPilot finds machines, and starts a job again elsewhere if its
    machine is taken away. States are those that the runners on the nodes write.

    Attributes:
      infra: Where: `aws`, `gcp/us-central1`, `k8s/my-cluster`; by default the cheapest.
      use_spot: Whether to use machines that may be taken away.
      setup: Shell commands that prepare a node, such as installing kauldron.
      workdir: The folder with your code, which is copied to the nodes. Jobs run in the
        copy, and find configs below it there.
      volume: `name:/path`: a volume, or a bucket such as `s3://team-runs:/runs`, and where
        the nodes mount it. The folder of the experiment has to lie below.
      apply: Whether to run `sky jobs launch`; otherwise the commands are printed.
      python: The interpreter on the nodes.

    Example:
      >>> engine = SkyPilot(infra="gcp", use_spot=True, volume="s3://team-runs:/runs")
    """

    tool: ClassVar[str] = "sky"
    engine_name: ClassVar[str] = "skypilot"
    manifest_folder: ClassVar[str] = "sky"

    infra: str | None = None
    use_spot: bool = False
    setup: str = ""
    workdir: str = "."

    def validate(self, units: Sequence[WorkUnit]) -> None:
        if not os.path.isdir(self.workdir):
            raise ValueError(f"SkyPilot(workdir={self.workdir!r}): no such folder.")
        super().validate(units)
        check_jobs(units, _check)

    def start_commands(
        self, folder: pathlib.Path, manifests: Mapping[str, pathlib.Path]
    ) -> list[list[str]]:
        launch = [self.tool, "jobs", "launch", "--yes", "--detach-run", "--name"]
        return [[*launch, name, str(path)] for name, path in manifests.items()]

    def stop_commands(self, names: Sequence[str]) -> list[list[str]]:
        return [[self.tool, "jobs", "cancel", "--yes", "--name", n] for n in names]

    def manifest(self, unit: WorkUnit, job: WorkUnitJob) -> dict[str, Any]:
        """Return the task of one job as data."""
        name = object_name(unit, job)
        nodes = job.requirements.replicas or 1
        command = shlex.join(runner_command(unit, job.name, python=self.python))
        task: dict[str, Any] = {
            "name": name,
            "workdir": os.path.abspath(self.workdir),
            "num_nodes": nodes,
            "resources": self._resources(job),
            "envs": self.runner_environment(name),
            # The runner takes the place of the shell, so that signals reach it.
            "run": f"{_RANKS if nodes > 1 else ''}exec {command}\n",
        }
        if self.setup:
            task["setup"] = self.setup
        if self.mount is not None:
            source, path = self.mount
            if "://" in source:
                task["file_mounts"] = {path: {"source": source, "mode": "MOUNT"}}
            else:
                task["volumes"] = {path: source}
        return task

    def _resources(self, job: WorkUnitJob) -> dict[str, Any]:
        wanted = job.requirements
        resources: dict[str, Any] = {
            "use_spot": self.use_spot,
            "job_recovery": {
                "max_restarts_on_errors": 0,
                "recover_on_exit_codes": [PREEMPTED],
            },
        }
        if self.infra is not None:
            resources["infra"] = self.infra
        accelerators = _accelerators(job)
        if accelerators is not None:
            resources["accelerators"] = accelerators
        if wanted.cpu is not None:
            resources["cpus"] = f"{wanted.cpu:g}+"
        if wanted.ram is not None:
            resources["memory"] = f"{math.ceil(wanted.ram / 2**30)}+"
        if wanted.disk is not None:
            resources["disk_size"] = math.ceil(wanted.disk / 2**30)
        return resources

    def moved(self, argv: list[str], cwd: str) -> dict[str, Any]:
        """Return the command as seen from the copy of `workdir` on a node."""
        top = pathlib.Path(self.workdir).absolute()
        mount = self.mount

        def is_copied(path: str) -> bool:
            is_mounted = mount is not None and pathlib.Path(path).is_relative_to(
                mount[1]
            )
            return pathlib.Path(path).is_relative_to(top) and not is_mounted

        def seen(argument: str) -> str:
            name, equals, value = argument.rpartition("=")
            if not is_copied(value):
                return argument
            return f"{name}{equals}{os.path.relpath(value, cwd)}"

        moved = super().moved(argv, cwd)
        if not is_copied(cwd):
            return moved
        first, *rest = moved["argv"]
        return {"argv": [first, *map(seen, rest)], "cwd": os.path.relpath(cwd, top)}


def _check(job: WorkUnitJob) -> None:
    _accelerators(job)
    if job.requirements.time_limit is not None:
        _log.warning("Job %r: time_limit has no effect on SkyPilot.", job.name)


def _accelerators(job: WorkUnitJob) -> str | None:
    """Return the accelerators of a node by the names of SkyPilot: `A100:8`.

    Raises:
      ValueError: SkyPilot does not know such a kind.
    """
    platform = job.accelerator
    name = "gpu" if platform is None else platform.name.lower()
    if name == "gpu" and job.gpus:
        raise ValueError(
            f"it asks for {job.gpus} GPUs, but SkyPilot must know of which type. Name "
            f"one: --xp.platform=a100={job.gpus}"
        )
    if platform is None or platform.kind == "cpu":
        return None
    if platform.kind == "gpu":
        return f"{platform.name.upper()}:{platform.count}"
    if name not in _TPUS:
        raise ValueError(
            f"platform={job.platform!r} is not a TPU of SkyPilot. It has "
            f"{', '.join(_TPUS)}: --xp.platform=v5e=4"
        )
    slice_name, cores = _TPUS[name]
    return f"{slice_name}-{platform.count * cores}"
