"""Killed at any instant, a run continues as if nothing had happened."""

import signal

import pytest

from tests.faults import harness

# Instant and which occurrence of it.
KILLS = [
    ("start", 1),
    ("metadata", 2),
    ("step", 13),
    ("evaluation", 6),
    ("saving", 3),
    ("end", 1),
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An undisturbed run."""
    workdir = tmp_path_factory.mktemp("reference")
    status, output = harness.run(workdir)
    assert status == 0, output
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize(("instant", "count"), KILLS)
def test_killed_run_continues_to_the_bit(tmp_path, reference, instant, count):
    status, output = harness.run(tmp_path, instant, count)
    assert status == -signal.SIGKILL, output
    harness.finish(tmp_path)
    harness.assert_same_run(tmp_path, reference)


@pytest.mark.slow
def test_killed_run_on_data_in_memory_continues_to_the_bit(tmp_path):
    data = "--in-memory"
    status, output = harness.run(tmp_path / "reference", data)
    assert status == 0, output
    status, output = harness.run(tmp_path / "run", "step", 13, data)
    assert status == -signal.SIGKILL, output
    harness.finish(tmp_path / "run", data)
    harness.assert_same_run(tmp_path / "run", tmp_path / "reference")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT), (signal.SIGUSR1, 0)],
    ids=["SIGTERM", "SIGINT", "SIGUSR1"],
)
def test_run_asked_to_stop_saves_and_continues(tmp_path, reference, number, expected):
    process = harness.start(tmp_path)
    for line in process.stdout:
        if "[9] collection=train" in line:
            process.send_signal(number)
            break
    output, _ = process.communicate()
    assert process.returncode == expected, output
    assert not (tmp_path / "train_complete.txt").exists()
    assert "Stopped at step" in output
    harness.finish(tmp_path)
    harness.assert_same_run(tmp_path, reference)
