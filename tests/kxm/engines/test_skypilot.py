"""Task files for SkyPilot, checked as data; and how runners answer to it."""

import json
import os
import subprocess
import sys

import pytest

from kauldron import kxm
from kauldron.kxm import records
from kauldron.kxm.engines import executor_of

JOB = kxm.Job(
    target=["fit"],
    platform="a100=4",
    requirements=kxm.JobRequirements(cpu=8, ram="16GiB", disk="100GiB"),
)


def experiment(tmp_path, job=JOB, **options):
    options = {"volume": f"s3://team-runs:{tmp_path}", **options}
    return kxm.Experiment(
        jobs={"My_Job.1": job},
        sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
        executor=kxm.SkyPilot(**options),
    )


def tasks(handle):
    folder = records.private(handle.xp_dir) / "sky"
    return {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.iterdir())
    }


def task_of(xp):
    unit = xp.work_units(xid=7)[0]
    return xp.common_executor.manifest(unit, unit.jobs["My_Job.1"])


def test_one_task_for_each_job_of_each_unit(tmp_path, capfd):
    options = {"infra": "gcp/us-central1", "use_spot": True, "setup": "pip install ."}
    handle = experiment(tmp_path, **options).launch()
    made = tasks(handle)
    assert list(made) == ["kd-1-1-my-job-1", "kd-1-2-my-job-1"]
    task = made["kd-1-2-my-job-1"]
    folder = handle.work_units[1].folder
    assert task == {
        "name": "kd-1-2-my-job-1",
        "workdir": str(tmp_path),
        "num_nodes": 1,
        "resources": {
            "infra": "gcp/us-central1",
            "accelerators": "A100:4",
            "cpus": "8+",
            "memory": "16+",
            "disk_size": 100,
            "use_spot": True,
            "job_recovery": {
                "max_restarts_on_errors": 0,
                "recover_on_exit_codes": [143],
            },
        },
        "envs": {
            "KXM_ENGINE": "skypilot",
            "KXM_ENGINE_ID": "kd-1-2-my-job-1",
            "KXM_RESTART_BY_EXIT_CODE": "1",
        },
        "file_mounts": {str(tmp_path): {"source": "s3://team-runs", "mode": "MOUNT"}},
        "setup": "pip install .",
        "run": f"exec python -m kauldron.kxm.runner {folder} My_Job.1\n",
    }
    path = records.private(handle.xp_dir) / "sky" / "kd-1-1-my-job-1.json"
    command = f"sky jobs launch --yes --detach-run --name kd-1-1-my-job-1 {path}"
    assert command in capfd.readouterr().out
    assert handle.status() == {"pending": 2}


def test_a_volume_by_name(tmp_path):
    task = task_of(experiment(tmp_path, volume=f"runs:{tmp_path}"))
    assert task["volumes"] == {str(tmp_path): "runs"}
    assert "file_mounts" not in task


def test_nodes_learn_their_rank_and_the_coordinator(tmp_path):
    printed = '"$JAX_COORDINATOR_ADDRESS $KXM_PROCESS_ID/$KXM_NUM_PROCESSES"'
    job = kxm.Job(target=["fit"], requirements=kxm.JobRequirements(replicas=4))
    task = task_of(experiment(tmp_path, job))
    assert task["num_nodes"] == 4
    script = task["run"].replace("exec python", f"echo {printed} #")
    env = {
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.9\n10.0.0.8\n10.0.0.6",
        "SKYPILOT_NODE_RANK": "2",
        "SKYPILOT_NUM_NODES": "4",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True
    )
    assert done.stdout == "10.0.0.7:8476 2/4\n"


@pytest.mark.parametrize(
    "platform, name",
    [("h100", "H100:1"), ("v4=2x2x1", "tpu-v4-8"), ("v5e=4", "tpu-v5litepod-4")],
)
def test_accelerators_have_the_names_of_skypilot(tmp_path, platform, name):
    task = task_of(experiment(tmp_path, kxm.Job(target=["fit"], platform=platform)))
    assert task["resources"]["accelerators"] == name


def test_code_is_found_in_the_copy_of_the_workdir(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "tools" / "fit.py").touch()
    (project / "config.yaml").touch()
    runs = tmp_path / "runs"
    monkeypatch.chdir(project)
    job = kxm.Job(
        target="tools/fit.py",
        cwd="tools",
        args={"config": str(project / "config.yaml"), "out": kxm.WU_DIR_PROXY},
    ).replace(target=[sys.executable, str(project / "tools" / "fit.py")])
    handle = experiment(tmp_path, job, volume=f"runs:{runs}").launch()
    folder = handle.work_units[0].folder
    made = records.read_unit(folder)["jobs"]["My_Job.1"]
    assert made["argv"][:3] == ["python", "fit.py", "--config=../config.yaml"]
    assert made["argv"][3] == f"--out={folder}"
    assert made["cwd"] == "tools"


@pytest.mark.parametrize(
    "job, options, message",
    [
        (JOB, {"volume": "s3://team-runs"}, "expected `name:/path`"),
        (JOB, {"volume": "runs:/elsewhere"}, "not on the volume"),
        (JOB, {"apply": True}, "needs sky on PATH"),
        (JOB, {"workdir": "nowhere"}, "no such folder"),
        (JOB.replace(platform="gpu=2"), {}, "Name one: --xp.platform=a100=2"),
        (JOB.replace(platform="jf=2x2"), {}, "not a TPU of SkyPilot"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, job, options, message, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        experiment(tmp_path, job, **options).launch()
    assert records.known_xids() == []


def test_tasks_are_launched_and_cancelled_with_sky(tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    sky = tools / "sky"
    sky.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    sky.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    handle = experiment(tmp_path, apply=True).launch()
    handle.stop([2])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.rpartition(" ")[0] for call in calls[:2]] == [
        "jobs launch --yes --detach-run --name kd-1-1-my-job-1",
        "jobs launch --yes --detach-run --name kd-1-2-my-job-1",
    ]
    assert calls[2:] == ["jobs cancel --yes --name kd-1-2-my-job-1"]
    assert [unit.state for unit in handle.work_units] == ["pending", "stopped"]
    sky.write_text("#!/bin/sh\necho no credentials >&2; exit 1\n")
    with pytest.raises(RuntimeError, match=r"jobs launch.*no credentials"):
        handle.resume([2])


def test_a_short_name_chooses_the_engine():
    assert isinstance(executor_of("sky"), kxm.SkyPilot)


def test_a_dry_run_shows_the_task(tmp_path, capfd):
    experiment(tmp_path).launch(dry=True)
    assert '"accelerators": "A100:4"' in capfd.readouterr().out
    assert records.known_xids() == []


#
# Engines that see exit codes alone
#

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    "code, options, before, expected",
    [
        ("", {}, {}, (0, "succeeded")),
        ("raise SystemExit(3)", {}, {}, (1, "failed")),
        ("raise SystemExit(3)", {"restart": "on_failure"}, {}, (143, "pending")),
        (KILLED, {}, {}, (143, "pending")),
        (KILLED, {}, {"restarts": 3}, (1, "failed")),
    ],
)
def test_the_exit_code_says_whether_to_start_again(
    tmp_path, python_job, code, options, before, expected
):
    handle = experiment(tmp_path, python_job(code), python=sys.executable, **options)
    handle = handle.launch()
    folder = handle.work_units[0].folder
    if before:
        records.write_status(folder, "My_Job.1", **before)
    assert (run_task(handle), handle.work_units[0].state) == expected


def test_what_was_stopped_is_not_started_again(tmp_path, python_job):
    job = python_job("")
    handle = experiment(tmp_path, job, python=sys.executable).launch()
    records.request_stop(handle.work_units[0].folder)
    assert (run_task(handle), handle.work_units[0].state) == (0, "stopped")


def run_task(handle):
    task = tasks(handle)["kd-1-1-my-job-1"]
    env = {**os.environ, **task["envs"]}
    return subprocess.run(["bash", "-c", task["run"]], env=env).returncode
