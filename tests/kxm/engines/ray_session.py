"""Starts a Ray cluster, runs an experiment on it, and prints what came of it as JSON.

    python -m tests.kxm.engines.ray_session FOLDER TRAINER

Ray listens on all addresses of the machine and asks nobody who they are. So this runs in
namespaces of its own, where there is only loopback, and whose processes end with it.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ["RAY_AUTH_MODE"] = "disabled"  # Ray would write a token to the home folder

import ray

from kauldron import kxm
from kauldron.kxm.engines import ray as ray_engine
from tests.kxm.waiting import poll

ADDRESS = "http://127.0.0.1:8265"
LONG = 240.0


def main(folder, trainer):
    folder = pathlib.Path(folder)
    ray_engine._ASK_SECONDS = 0.2  # instead of each second
    engine = kxm.Ray(
        address=ADDRESS, num_cpus=0.5, resources={"slot": 0.5}, backoff_s=0.1
    )
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temp:
        ray.init(
            num_cpus=2,
            resources={"slot": 2},
            object_store_memory=10**8,
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            dashboard_port=8265,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=temp,
            _system_config={"prestart_worker_first_driver": False},
        )
        poll(lambda: _answers(engine), seconds=LONG)
        print(json.dumps(run(folder, trainer, engine)), flush=True)
    os._exit(0)  # what Ray has started ends with this process, and at once


def _answers(engine):
    try:
        return engine.client()
    except ValueError:
        return None


def run(folder, trainer, engine):
    """One unit that is stopped, one that is killed, starts again and is evaluated.

    Each start of a job costs Ray another process that imports it.
    """
    os.chdir(folder)
    code = "import os, sys; sys.exit(int(os.environ['KXM_WID']))"
    out, release = f"{kxm.WU_DIR_PROXY}/out", str(folder / "never")
    after = {"train": "succeeded"}
    handle = kxm.Experiment(
        jobs={
            "train": kxm.Job(target=trainer, args={"out": out, "until": release}),
            "after": kxm.Job(target=[sys.executable, "-c", code], after=after),
        },
        sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
        executor=engine,
    ).launch(wait=False)
    stopped, killed = handle.work_units
    ready = [pathlib.Path(unit.folder, "out", "ready") for unit in (killed, stopped)]
    poll(lambda: all(path.exists() for path in ready), seconds=LONG)
    handle.stop([1])
    jobs = engine.client().list_jobs()
    [on_ray] = [job for job in jobs if job.submission_id == _id(killed)]
    os.killpg(killed.jobs["train"]["program_pid"], 9)
    poll(lambda: killed.jobs["train"]["attempt"] == 2, seconds=LONG)
    (folder / "never").touch()
    handle.wait(timeout=LONG)
    return {
        "units": [unit.jobs for unit in (stopped, killed)],
        "saved": pathlib.Path(stopped.folder, "out", "count").exists(),
        "logs": [unit.log_path("train").read_text() for unit in (stopped, killed)],
        "metadata": on_ray.metadata,
    }


def _id(unit):
    return unit.jobs["train"]["engine_id"]


if __name__ == "__main__":
    main(*sys.argv[1:])
