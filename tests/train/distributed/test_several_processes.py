"""Several processes that train one model together."""

import pathlib
import signal

import pytest

from kauldron import writers
from tests import processes
from tests.train.distributed import process_worker


def _start(workdir, count=2, **options):
    """Start the processes; each has two devices, and compiles quickly."""
    port = processes.free_port()
    words = [f"{key}={value}" for key, value in options.items()]
    return [
        processes.python(
            *("-m", "tests.train.distributed.process_worker"),
            *(port, index, count, workdir, *words),
            environment={
                "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
                "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
            },
        )
        for index in range(count)
    ]


ENDLESS = {"num_train_steps": 10**6, "log_metrics_every": 10, "evaluates": 0}


def _finish(workers):
    codes, outputs = zip(*(worker.wait() for worker in workers))
    assert codes == (0, 0), "\n".join(outputs)
    done = {line for text in outputs for line in text.splitlines() if "done" in line}
    assert len(done) == 1, done  # both have the same parameters
    return done.pop()


def _points(workdir, collection="train"):
    return {
        line["step"]: line["values"]["losses/l2"]
        for line in writers.read_scalars(pathlib.Path(workdir) / collection)
        if "losses/l2" in line["values"]
    }


@pytest.mark.slow
def test_two_processes_train_evaluate_save_and_resume_like_one(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    workers = _start(two, num_train_steps=12, stop_after_steps=7)
    process_worker.make(one, num_train_steps=12).train()
    assert "done 7 " in _finish(workers)
    assert "done 12 " in _finish(_start(two, num_train_steps=12))
    for collection, steps in (
        ("train", [0, 5, 10, 11]),
        ("along", [0, 6, 12]),
        ("final", [7, 12]),
    ):
        expected, points = _points(one, collection), _points(two, collection)
        assert set(steps) <= set(points)
        assert {step: points[step] for step in expected} == pytest.approx(
            expected, rel=1e-4
        )
    assert (two / "train_complete.txt").exists()


@pytest.mark.slow
def test_transforms_run_on_the_devices_of_two_processes(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    workers = _start(two, device_transforms=1)
    process_worker.make(one, device_transforms=False).train()
    codes, outputs = zip(*(worker.wait() for worker in workers))
    assert codes == (0, 0), "\n".join(outputs)
    assert "inside the train step: transforms[0] ValueRange" in outputs[0]
    for collection in ("train", "along"):
        points = _points(two, collection)
        assert points == pytest.approx(_points(one, collection), rel=1e-4)


@pytest.mark.slow
def test_notice_to_one_process_stops_all_after_saving(tmp_path):
    workers = _start(tmp_path, **ENDLESS)
    workers[0].wait_for("[10] train")
    workers[1].send_signal(signal.SIGTERM)
    codes, outputs = zip(*(worker.wait() for worker in workers))
    assert codes == (143, 143), "\n".join(outputs)
    assert all("Stopped at step" in output for output in outputs), outputs
    assert not (tmp_path / "train_complete.txt").exists()
    steps = [
        int(path.name.removeprefix("ckpt_"))
        for path in (tmp_path / "checkpoints").glob("ckpt_*")
    ]
    assert f"Stopped at step {max(steps)}" in outputs[0]


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """Runs of two processes, one of which is killed: by its index, workdir and the other.

    That it is dead is known after a while, for which both runs wait at the same time.
    """
    started = {}
    for dead in (0, 1):
        workdir = tmp_path_factory.mktemp(f"death_of_{dead}")
        started[dead] = workdir, _start(workdir, **ENDLESS, heartbeat=4)
    for dead, (_, workers) in started.items():
        workers[0].wait_for("[20] train")
        workers[dead].send_signal(signal.SIGKILL)
    return {
        dead: (workdir, workers[1 - dead])
        for dead, (workdir, workers) in started.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0, 1], ids=["the first", "the second"])
def test_death_of_one_process_ends_the_other_and_a_new_start_continues(deaths, dead):
    workdir, other = deaths[dead]
    code, output = other.wait()
    assert code != 0, output
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, output
    assert "Another process of this job has ended" in errors[0]
    assert "stack trace" not in output and "coordination_service" not in output, output
    assert not (workdir / "train_complete.txt").exists()
    newest = max(_saved_steps(workdir))
    stop = newest + 3
    assert f"done {stop} " in _finish(_start(workdir, **ENDLESS, stop_after_steps=stop))


def _saved_steps(workdir):
    return [
        int(path.name.removeprefix("ckpt_"))
        for path in (workdir / "checkpoints").glob("ckpt_*")
        if path.name.removeprefix("ckpt_").isdigit()
    ]
