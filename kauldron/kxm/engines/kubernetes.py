"""`Kubernetes`: manifests of indexed jobs, written as JSON and applied if you like.

The folder of the experiment has to be on a volume that the pods mount at the same path:
the runner in each pod reads the record of its work unit there, and writes log and status.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kauldron.kxm.engines.executor import (
    COORDINATOR_PORT,
    ManifestExecutor,
    label,
    object_name,
    runner_command,
)
from kauldron.kxm.engines.work_units import WorkUnit, WorkUnitJob
from kauldron.kxm.runner import PREEMPTED

_KILLED = 137  # of a runner that was killed itself
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Kubernetes(ManifestExecutor):
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

    tool: ClassVar[str] = "kubectl"
    engine_name: ClassVar[str] = "kubernetes"
    manifest_folder: ClassVar[str] = "k8s"

    image: str = ""
    namespace: str = "default"
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str | None = None

    def validate(self, units: Sequence[WorkUnit]) -> None:
        if not self.image:
            raise ValueError(
                "Kubernetes needs a container image: --xp.executor.image=..."
            )
        super().validate(units)

    def start_commands(
        self, folder: pathlib.Path, manifests: Mapping[str, pathlib.Path]
    ) -> list[list[str]]:
        del manifests
        return [[*self._kubectl, "apply", "-f", str(folder)]]

    def stop_commands(self, names: Sequence[str]) -> list[list[str]]:
        return [[*self._kubectl, "delete", "job", "--ignore-not-found", *names]]

    @property
    def _kubectl(self) -> list[str]:
        return [self.tool, "--namespace", self.namespace]

    #
    # The manifest
    #

    def manifest(self, unit: WorkUnit, job: WorkUnitJob) -> dict[str, Any]:
        """Return the objects of one job as data."""
        name = object_name(unit, job)
        nodes = job.requirements.replicas or 1
        labels = {
            "app": "kauldron",
            "kauldron/xid": label(str(unit.xid)),
            "kauldron/wid": str(unit.wid),
            "kauldron/job": label(job.name),
        }
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        spec = {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0 if job.restart == "never" else job.max_restarts,
            "podFailurePolicy": {"rules": _failure_rules()},
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
            {"name": key, "value": value}
            for key, value in self.runner_environment(name).items()
        ]
        if nodes > 1:
            address = f"{name}-0.{name}.{self.namespace}.svc:{COORDINATOR_PORT}"
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
        if self.mount is not None:
            claim, path = self.mount
            container["volumeMounts"] = [{"name": "runs", "mountPath": path}]
            source = {"persistentVolumeClaim": {"claimName": claim}}
            pod["volumes"] = [{"name": "runs", **source}]
        if self.node_selector:
            pod["nodeSelector"] = dict(self.node_selector)
        if self.service_account is not None:
            pod["serviceAccountName"] = self.service_account
        return pod


def _failure_rules() -> list[dict[str, Any]]:
    """Return what becomes of pods that fail: the runner decides which start again."""
    disrupted = [{"type": "DisruptionTarget"}]
    again = {"operator": "In", "values": [PREEMPTED]}
    ended = {"operator": "NotIn", "values": [PREEMPTED, _KILLED]}
    return [
        {"action": "Ignore", "onPodConditions": disrupted},
        {"action": "Ignore", "onExitCodes": again},
        {"action": "FailJob", "onExitCodes": ended},
    ]


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
