"""`Kubernetes`: manifests of indexed jobs, written as JSON and applied if you like.

The folder of the experiment has to be on a volume that the pods mount at the same path:
the runner in each pod reads the record of its work unit there, and writes log and status.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.kxm import records
from kauldron.kxm.engines.executor import Executor, runner_command, unfinished
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle

_PORT = 8476
_PREEMPTED = 143
_BY_SIGNAL = [128 + number for number in range(1, 32)]
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Kubernetes(Executor):
    """Writes one manifest for each job, to `.kxm/k8s` in the experiment's folder.

    Pods that are evicted, or exit with 143 after saving, are replaced; states are those
    that the runners in the pods write.

    Attributes:
      image: The container image; it has kauldron and your code in it.
      namespace: Where the jobs go.
      volume: `claim:/path`: a persistent volume claim, and where the pods mount it. The
        folder of the experiment has to lie below.
      apply: Whether to run `kubectl apply`; otherwise the command is printed.
      python: The interpreter in the image.
      node_selector: Labels of the nodes to run on.
      service_account: What the pods run as.

    Example:
      >>> engine = Kubernetes(image="team/train:3", volume="runs:/runs", apply=True)
    """

    image: str = ""
    namespace: str = "default"
    volume: str | None = None
    apply: bool = False
    python: str = "python"
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.volume is not None and not re.fullmatch(r"[\w.-]+:/.*", self.volume):
            raise ValueError(f"volume={self.volume!r}: expected `claim:/path`.")

    def validate(self, units: Sequence[WorkUnit]) -> None:
        if not self.image:
            raise ValueError(
                "Kubernetes needs a container image: --xp.executor.image=..."
            )
        if self.apply and shutil.which("kubectl") is None:
            raise ValueError("Kubernetes(apply=True) needs kubectl on PATH.")
        if self.volume is not None:
            mount = self.volume.partition(":")[2].rstrip("/") + "/"
            for unit in units:
                if not str(unit.xp_dir).startswith(mount):
                    raise ValueError(
                        f"The folder {unit.xp_dir} is not on the volume at {mount}. Set "
                        f"--xp.root_dir={mount}..."
                    )

    def submit(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        folder = records.private(handle.xp_dir) / "k8s"
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for unit, job in unfinished(units):
            name = object_name(unit, job)
            files.append(folder / f"{name}.json")
            files[-1].write_text(self.submission_text(unit, job) + "\n")
            records.write_status(
                unit.folder, job.name, engine="kubernetes", engine_id=name
            )
        command = ["kubectl", "apply", "-f", str(folder)]
        if not self.apply:
            print(f"{len(files)} manifests are in {folder}. To start them:")
            print(f"  {' '.join(command)}", flush=True)
            return
        self._kubectl("apply", "-f", str(folder))

    def stop(self, handle: ExperimentHandle, units: Sequence[WorkUnit]) -> None:
        names = []
        for unit, job in unfinished(units):
            if unit.state_of(job.name) == records.PENDING:
                unit.set_state(job.name, records.STOPPED)
                names.append(object_name(unit, job))
        if names and self.apply:
            self._kubectl("delete", "job", "--ignore-not-found", *names)

    def _kubectl(self, *arguments: str) -> None:
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")

    def submission_text(self, unit: WorkUnit, job: WorkUnitJob) -> str:
        return json.dumps(self.manifest(unit, job), indent=1)

    #
    # The manifest
    #

    def manifest(self, unit: WorkUnit, job: WorkUnitJob) -> dict[str, Any]:
        """Return the objects of one job as data."""
        name = object_name(unit, job)
        nodes = job.requirements.replicas or 1
        labels = {
            "app": "kauldron",
            "kauldron/xid": _label(str(unit.xid)),
            "kauldron/wid": str(unit.wid),
            "kauldron/job": _label(job.name),
        }
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        spec = {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0 if job.restart == "never" else job.max_restarts,
            "podFailurePolicy": {"rules": _failure_rules(job)},
            "template": {
                "metadata": {"labels": labels},
                "spec": self._pod(unit, job, name, nodes),
            },
        }
        if job.requirements.time_limit is not None:
            spec["activeDeadlineSeconds"] = job.requirements.time_limit * 60
        items = [
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
        ]
        if nodes > 1:
            items.append(
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": meta,
                    "spec": {"clusterIP": "None", "selector": {"job-name": name}},
                }
            )
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def _pod(
        self, unit: WorkUnit, job: WorkUnitJob, name: str, nodes: int
    ) -> dict[str, Any]:
        env: list[dict[str, Any]] = [
            {"name": "KXM_ENGINE", "value": "kubernetes"},
            {"name": "KXM_ENGINE_ID", "value": name},
        ]
        if nodes > 1:
            address = f"{name}-0.{name}.{self.namespace}.svc:{_PORT}"
            index = {"fieldRef": {"fieldPath": _INDEX}}
            env += [
                {"name": "KXM_NUM_PROCESSES", "value": str(nodes)},
                {"name": "JAX_COORDINATOR_ADDRESS", "value": address},
                {"name": "KXM_PROCESS_ID", "valueFrom": index},
            ]
        container: dict[str, Any] = {
            "name": "main",
            "image": self.image,
            "command": runner_command(unit, job.name, python=self.python),
            "env": env,
            "resources": _resources(job),
        }
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": int(job.grace_s) + 10,
            "containers": [container],
        }
        if nodes > 1:
            pod["subdomain"] = name
        if self.volume is not None:
            claim, _, path = self.volume.partition(":")
            container["volumeMounts"] = [{"name": "runs", "mountPath": path}]
            source = {"persistentVolumeClaim": {"claimName": claim}}
            pod["volumes"] = [{"name": "runs", **source}]
        if self.node_selector:
            pod["nodeSelector"] = dict(self.node_selector)
        if self.service_account is not None:
            pod["serviceAccountName"] = self.service_account
        return pod


def _failure_rules(job: WorkUnitJob) -> list[dict[str, Any]]:
    """Return what becomes of pods that fail: evictions and saved programs do not count."""
    disrupted = [{"type": "DisruptionTarget"}]
    rules: list[dict[str, Any]] = [
        {"action": "Ignore", "onPodConditions": disrupted},
        {
            "action": "Ignore",
            "onExitCodes": {"operator": "In", "values": [_PREEMPTED]},
        },
    ]
    if job.restart == "on_signal":
        codes = {"operator": "NotIn", "values": _BY_SIGNAL}
        rules.append({"action": "FailJob", "onExitCodes": codes})
    return rules


def _resources(job: WorkUnitJob) -> dict[str, Any]:
    wanted = job.requirements
    requests = {}
    if wanted.cpu is not None:
        requests["cpu"] = f"{wanted.cpu:g}"
    if wanted.ram is not None:
        requests["memory"] = str(wanted.ram)
    if wanted.disk is not None:
        requests["ephemeral-storage"] = str(wanted.disk)
    limits = {"memory": requests["memory"]} if "memory" in requests else {}
    accelerator = job.accelerator
    if job.gpus:
        limits["nvidia.com/gpu"] = str(job.gpus)
    elif accelerator is not None and accelerator.kind == "tpu":
        limits["google.com/tpu"] = str(accelerator.count)
    return {"requests": requests, "limits": limits}


def object_name(unit: WorkUnit, job: WorkUnitJob) -> str:
    """Return a name that Kubernetes accepts: at most 52 letters, digits and dashes."""
    return _label(f"kd-{unit.xid}-{unit.wid}-{job.name}", longest=52)


def _label(text: str, longest: int = 63) -> str:
    safe = re.sub(r"[^a-z0-9]+", "-", text.lower())[:longest]
    return safe.strip("-")
