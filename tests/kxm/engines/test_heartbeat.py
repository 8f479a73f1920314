"""Jobs that are gone without a word: whoever looks at the states notices."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kauldron import kxm
from kauldron.cli.main import main
from kauldron.kxm import records
from tests.kxm.waiting import poll


def lost(handle):
    events = records.read_events(handle.xp_dir)
    found = [event for event in events if event["event"] == "heartbeat-lost"]
    return [(event["wid"], event["job"], event["attempt"]) for event in found]


def launched(job):
    """Launch on an engine that leaves the start to others."""
    return kxm.Experiment(jobs={"main": job}, executor=kxm.SkyPilot()).launch()


@pytest.fixture
def killed(python_job):
    """A job whose runner was killed while its program ran."""
    handle = launched(python_job("import time; time.sleep(600)"))
    [unit] = handle.work_units
    command = [sys.executable, "-m", "kauldron.kxm.runner", str(unit.folder), "main"]
    runner = subprocess.Popen(command)
    try:
        poll(lambda: unit.jobs["main"]["state"] == "running")
        handle.refresh()
        assert lost(handle) == []
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        if program := unit.jobs["main"].get("program_pid"):
            os.killpg(program, signal.SIGKILL)
    return handle


def test_the_end_of_a_killed_runner_is_noted_once(killed, capfd):
    capfd.readouterr()
    for _ in range(2):
        assert main(["xp", "status", str(killed.xid)]) == 0
        assert "main:running [heartbeat lost]" in capfd.readouterr().out
    assert lost(killed) == [(1, "main", 1)]


def test_a_killed_runner_of_this_machine_is_stopped(killed, capfd):
    [unit] = killed.work_units
    records.write_status(unit.folder, "main", engine="local")
    assert main(["xp", "status", str(killed.xid)]) == 0
    assert "main:stopped [killed]" in capfd.readouterr().out
    assert lost(killed) == [(1, "main", 1)]


@pytest.mark.parametrize("age, expected", [(3600.0, [(1, "main", 2)]), (0.0, [])])
def test_a_job_elsewhere_is_lost_when_it_is_silent(python_job, age, expected):
    handle = launched(python_job(""))
    [unit] = handle.work_units
    status = {"state": "running", "attempt": 2, "host": "another-machine", "pid": 1}
    path = records.private(unit.folder) / "status" / "main.json"
    records.write_json(path, {**status, "updated": time.time() - age})
    handle.refresh()
    assert lost(handle) == expected
