"""One training job per workdir: who is kept out, and who is not."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from etils import epath

from kauldron.train.workdir_lock import LOCK_FILENAME, holder, workdir_lock

HOLDER = """
import signal, sys
from etils import epath
from kauldron.train.workdir_lock import workdir_lock
with workdir_lock(epath.Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def other_process(tmp_path):
    """A process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_second_job_is_refused_with_host_process_and_time(tmp_path, other_process):
    with pytest.raises(RuntimeError) as error, workdir_lock(epath.Path(tmp_path)):
        pass
    message = str(error.value)
    assert f"Another training job uses {tmp_path}: process {other_process.pid} on " in (
        message
    )
    assert socket.gethostname() in message and ", started 2" in message
    assert "set another `cfg.workdir`" in message


def test_lock_of_a_dead_process_is_taken_over(tmp_path, other_process):
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    path = epath.Path(tmp_path) / LOCK_FILENAME
    assert str(other_process.pid) in path.read_text()  # it could not clean up
    assert holder(path) is None
    with workdir_lock(epath.Path(tmp_path)):
        assert holder(path)["pid"] == os.getpid()
    assert holder(path) is None and path.read_text() == ""


def test_who_only_looks_keeps_nobody_out(tmp_path):
    path = tmp_path / LOCK_FILENAME
    path.touch()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as `kauldron runs` does for an instant
        unlock = threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN))
        unlock.start()
        with workdir_lock(epath.Path(tmp_path)):
            assert holder(epath.Path(path)) is not None
        unlock.join()
