"""Several processes that train one model together."""

import pathlib
import signal

import pytest

from kauldron import writers
from tests import compilation, processes
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
                **compilation.quick_environment(),
            },
        )
        for index in range(count)
    ]


# They pause at each step: what they do until they are disturbed is of no use. All steps
# are logged, so that they are one program; without dropout, it is a short one.
ENDLESS = {
    "num_train_steps": 10**6,
    "log_metrics_every": 1,
    "drops": 0,
    "evaluates": 0,
    "pauses": 1,
}


def _wait(workers):
    codes, outputs = zip(*(worker.wait() for worker in workers))
    return codes, outputs


def _finish(workers):
    """Wait for the ends; return what both say then, and all that they printed."""
    codes, outputs = _wait(workers)
    assert codes == (0, 0), "\n".join(outputs)
    done = {line for text in outputs for line in text.splitlines() if "done" in line}
    assert len(done) == 1, done  # both have the same parameters
    return done.pop(), outputs


def _points(workdir, collection="train"):
    return {
        line["step"]: line["values"]["losses/l2"]
        for line in writers.read_scalars(pathlib.Path(workdir) / collection)
        if "losses/l2" in line["values"]
    }


NUM_STEPS, STOP = 12, 7


@pytest.fixture(scope="module")
def like_one(tmp_path_factory):
    """A run of one process, and one of two: their workdirs, and what two printed first.

    The two stop, and are started again. Then the host transforms what the devices
    transformed before.
    """
    folder = tmp_path_factory.mktemp("like_one")
    one, two = folder / "one", folder / "two"
    # All steps are logged, so that they are one program.
    changes = {"num_train_steps": NUM_STEPS, "log_metrics_every": 1}
    changes["device_transforms"] = 0
    first = changes | {"stop_after_steps": STOP, "device_transforms": 1}
    workers = _start(two, **first)
    process_worker.make(one, **changes).train()
    done, outputs = _finish(workers)
    assert f"done {STOP} " in done
    done, _ = _finish(_start(two, **changes))
    assert f"done {NUM_STEPS} " in done
    return one, two, outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collection", "steps"),
    [("train", [0, 5, 10, 11]), ("along", [0, 6, 12]), ("final", [7, 12])],
)
def test_two_processes_train_evaluate_save_and_resume_like_one(
    like_one, collection, steps
):
    one, two, _ = like_one
    expected, points = _points(one, collection), _points(two, collection)
    assert set(steps) <= set(points)
    assert {step: points[step] for step in expected} == pytest.approx(
        expected, rel=1e-4
    )
    assert (two / "train_complete.txt").exists()


@pytest.mark.slow
def test_transforms_run_on_the_devices_of_two_processes(like_one):
    one, two, outputs = like_one
    assert "inside the train step: transforms[0] ValueRange" in outputs[0]
    for collection, steps in (("train", [0, 5]), ("along", [0, 6])):
        expected, points = _points(one, collection), _points(two, collection)
        assert {step: points[step] for step in steps} == pytest.approx(
            {step: expected[step] for step in steps}, rel=1e-4
        )


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """Runs of two processes, one of which is killed.

    By the index of the killed one: the workdir, exit code and output of the other. That
    it is dead is known after a while, for which both runs wait at the same time.
    """
    started = {}
    for dead in (0, 1):
        workdir = tmp_path_factory.mktemp(f"death_of_{dead}")
        started[dead] = workdir, _start(workdir, **ENDLESS, heartbeat=8)
    for dead, (_, workers) in started.items():
        workers[0].wait_for("[15] train")
        workers[dead].send_signal(signal.SIGKILL)
    return {
        dead: (workdir, *workers[1 - dead].wait())
        for dead, (workdir, workers) in started.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0, 1], ids=["the first", "the second"])
def test_death_of_one_process_ends_the_other(deaths, dead):
    workdir, code, output = deaths[dead]
    assert code != 0, output
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, output
    assert "Another process of this job has ended" in errors[0]
    assert "stack trace" not in output and "coordination_service" not in output, output
    assert not (workdir / "train_complete.txt").exists()


@pytest.fixture(scope="module")
def noticed(deaths):
    """A new start after the death of the first; then the second is asked to stop.

    Returns the workdir, the step of the newest checkpoint before, codes and outputs.
    """
    workdir, *_ = deaths[0]
    newest = max(_saved_steps(workdir))
    workers = _start(workdir, **ENDLESS)
    workers[0].wait_for(f"[{newest + 2}] train")
    workers[1].send_signal(signal.SIGTERM)
    return workdir, newest, *_wait(workers)


@pytest.mark.slow
def test_new_start_after_the_death_of_the_first_continues(noticed):
    _, newest, _, outputs = noticed
    assert f"Resuming at step {newest}" in outputs[0], outputs


@pytest.mark.slow
def test_new_start_after_the_death_of_the_second_continues(deaths):
    workdir, *_ = deaths[1]
    newest = max(_saved_steps(workdir))
    stop = newest + 3
    done, outputs = _finish(_start(workdir, **ENDLESS, stop_after_steps=stop))
    assert f"done {stop} " in done
    assert f"Resuming at step {newest}" in outputs[0], outputs


@pytest.mark.slow
def test_notice_to_one_process_stops_all_after_saving(noticed):
    workdir, newest, codes, outputs = noticed
    assert codes == (143, 143), "\n".join(outputs)
    assert all("Stopped at step" in output for output in outputs), outputs
    assert not (workdir / "train_complete.txt").exists()
    saved = max(_saved_steps(workdir))
    assert saved > newest
    assert f"Stopped at step {saved}" in outputs[0]


def _saved_steps(workdir):
    return [
        int(path.name.removeprefix("ckpt_"))
        for path in (workdir / "checkpoints").glob("ckpt_*")
        if path.name.removeprefix("ckpt_").isdigit()
    ]
