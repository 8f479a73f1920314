"""Manifests for Kubernetes, checked as data."""

import json
import os
import re

import pytest

from kauldron import kxm
from kauldron.kxm import records


def experiment(tmp_path, job=None, **options):
    options = {"image": "team/train:3", "volume": f"runs:{tmp_path}", **options}
    job = job or kxm.Job(
        target=["fit"],
        platform="a100=4",
        requirements=kxm.JobRequirements(cpu=2.5, ram="16GB", time_limit="2h"),
    )
    return kxm.Experiment(
        jobs={"My_Job.1": job},
        sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
        executor=kxm.Kubernetes(**options),
    )


def manifests(handle):
    folder = records.private(handle.xp_dir) / "k8s"
    return {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.iterdir())
    }


def test_one_job_for_each_job_of_each_unit(tmp_path, capfd):
    handle = experiment(tmp_path, namespace="ml").launch()
    made = manifests(handle)
    assert list(made) == ["kd-1-1-my-job-1", "kd-1-2-my-job-1"]
    [job] = made["kd-1-2-my-job-1"]["items"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["metadata"]["namespace"] == "ml"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 1
    assert spec["activeDeadlineSeconds"] == 7200
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    [container] = pod["containers"]
    unit = handle.work_units[1].unit
    assert container["command"] == [
        "python", "-m", "kauldron.kxm.runner", str(unit.folder), "My_Job.1",
    ]  # fmt: skip
    assert container["resources"] == {
        "requests": {"cpu": "2.5", "memory": "16000000000"},
        "limits": {"memory": "16000000000", "nvidia.com/gpu": "4"},
    }
    assert container["volumeMounts"] == [{"name": "runs", "mountPath": str(tmp_path)}]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert "kubectl --namespace ml apply -f" in capfd.readouterr().out
    assert handle.status() == {"pending": 2}


def test_pods_are_replaced_if_the_runner_says_so_or_was_evicted(tmp_path):
    xp = experiment(tmp_path, max_restarts=5, grace_s=30.0)
    unit = xp.work_units()[0]
    engine = xp.common_executor
    spec = engine.manifest(unit, unit.jobs["My_Job.1"])["items"][0]["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget"}]
    assert rules[1] == {
        "action": "Ignore",
        "onExitCodes": {"operator": "In", "values": [143]},
    }
    assert rules[2] == {
        "action": "FailJob",
        "onExitCodes": {"operator": "NotIn", "values": [143, 137]},
    }
    assert spec["backoffLimit"] == 5
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 40
    env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert env["KXM_RESTART_BY_EXIT_CODE"] == "1"


def test_programs_run_with_the_interpreter_of_the_image(tmp_path):
    (tmp_path / "fit.py").touch()
    job = kxm.Job(target="fit.py")
    handle = experiment(tmp_path, job, python="/opt/python").launch()
    argv = records.read_unit(handle.work_units[0].folder)["jobs"]["My_Job.1"]["argv"]
    assert argv[:2] == ["/opt/python", str(tmp_path / "fit.py")]


def test_several_nodes_have_a_service_and_find_each_other(tmp_path):
    job = kxm.Job(target=["fit"], requirements=kxm.JobRequirements(replicas=4))
    xp = experiment(tmp_path, job)
    unit = xp.work_units(xid=7)[0]
    manifest = xp.common_executor.manifest(unit, unit.jobs["My_Job.1"])
    made, service = manifest["items"]
    name = service["metadata"]["name"]
    assert made["spec"]["completions"] == 4
    assert service["spec"] == {"clusterIP": "None", "selector": {"job-name": name}}
    pod = made["spec"]["template"]["spec"]
    assert pod["subdomain"] == name
    env = {e["name"]: e for e in pod["containers"][0]["env"]}
    assert env["KXM_NUM_PROCESSES"]["value"] == "4"
    address = env["JAX_COORDINATOR_ADDRESS"]["value"]
    assert address.startswith(f"{name}-0.{name}.default.svc:")
    assert "job-completion-index" in json.dumps(env["KXM_PROCESS_ID"])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"image": ""}, "container image"),
        ({"volume": "runs:/elsewhere"}, "not on the volume"),
        ({"apply": True}, "kubectl"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, options, message, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        experiment(tmp_path, **options).launch()
    assert records.known_xids() == []


def test_a_volume_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="expected `name:/path`"):
        kxm.Kubernetes(volume="runs")


def test_manifests_are_applied_and_deleted_with_kubectl(tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    kubectl = tools / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    handle = experiment(tmp_path, apply=True).launch()
    handle.stop([2])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0].startswith("--namespace default apply -f ")
    assert calls[1].endswith("delete job --ignore-not-found kd-1-2-my-job-1")
    assert [unit.state for unit in handle.work_units] == ["pending", "stopped"]
    handle.resume([2])
    calls = (tmp_path / "calls").read_text().splitlines()
    # What is left of it goes first: a job that exists is not started again.
    assert calls[2].endswith("delete job --ignore-not-found kd-1-2-my-job-1")
    assert calls[3].startswith("--namespace default apply -f ")
    assert list(manifests(handle)) == ["kd-1-2-my-job-1"]
    kubectl.write_text("#!/bin/sh\necho no cluster >&2; exit 1\n")
    with pytest.raises(RuntimeError, match="no cluster"):
        handle.resume([2])


def test_a_dry_run_shows_the_manifest(tmp_path, capfd):
    experiment(tmp_path).launch(dry=True)
    out = capfd.readouterr().out
    assert '"image": "team/train:3"' in out
    assert records.known_xids() == []
