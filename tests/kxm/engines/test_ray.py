"""Work units on a real Ray cluster, which the test starts itself."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from kauldron import kxm

NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


def why_not():
    """Why there can be no cluster here; empty if there can."""
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed: pip install 'kauldron[ray]'"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "needs unshare and ip, to hide Ray's open ports from the network"
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        return "namespaces of processes and networks are not allowed here"
    return ""


@pytest.mark.slow
def test_units_run_on_ray_and_end_as_their_programs_do(trainer, tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    here = str(pathlib.Path(__file__).parents[3])
    paths = [here, *(path for path in sys.path if path)]
    worker = [
        sys.executable,
        "-m",
        "tests.kxm.engines.ray_session",
        str(tmp_path),
        trainer,
    ]
    script = 'ip link set lo up && exec "$@"'
    done = subprocess.run(
        [*NAMESPACES, "bash", "-c", script, "bash", *worker],
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    stopped, killed = seen["units"]
    assert stopped["train"]["state"] == "stopped"
    assert stopped["after"]["state"] == "stopped"
    assert seen["saved"]
    assert "saved" in seen["logs"][0]
    assert killed["train"]["state"] == "succeeded"
    assert killed["train"]["engine"] == "ray"
    assert killed["train"]["attempt"] == 2
    assert seen["logs"][1].count("starts at 0\n") == 2
    assert killed["after"]["state"] == "failed"
    assert killed["after"]["returncode"] == 2
    assert seen["metadata"]["wid"] == "2"
    assert seen["metadata"]["job"] == "train"


def submission(engine, **params):
    xp = kxm.Experiment(jobs={"a": kxm.Job(target=["fit"], **params)}, executor=engine)
    [unit] = xp.work_units()
    return engine.submission(unit, unit.jobs["a"])


def test_resources_become_arguments():
    wanted = kxm.JobRequirements(ram="2GB")
    engine = kxm.Ray(num_cpus=3, resources={"disk": 1}, working_dir="code")
    made = submission(engine, platform="a100=2", requirements=wanted)
    assert made.pop("entrypoint").endswith(" a")
    assert made == {
        "entrypoint_num_cpus": 3,
        "entrypoint_num_gpus": 2,
        "entrypoint_memory": 2 * 10**9,
        "entrypoint_resources": {"disk": 1},
        "runtime_env": {"working_dir": "code"},
        "metadata": {"xid": "<xid>", "wid": "1", "job": "a"},
    }
    cpus = kxm.JobRequirements(cpu=2.5)
    assert submission(kxm.Ray(), requirements=cpus)["entrypoint_num_cpus"] == 2.5


@pytest.mark.parametrize(
    "params, message",
    [
        ({"requirements": kxm.JobRequirements(replicas=2)}, "2 nodes.*slurm"),
        ({"platform": "v4=8"}, "TPU"),
    ],
)
def test_what_ray_jobs_cannot_do_is_refused(params, message):
    job = kxm.Job(target=["fit"], **params)
    with pytest.raises(ValueError, match=message):
        kxm.Experiment(jobs={"a": job}, executor=kxm.Ray()).launch()


def test_without_ray_the_extra_is_named(monkeypatch, python_job):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"kauldron\[ray\]"):
        kxm.Experiment(jobs={"a": python_job("")}, executor=kxm.Ray()).launch()
