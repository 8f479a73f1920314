"""A file is whole or absent, whenever the process that writes it is killed."""

import os
import random
import signal
import subprocess
import sys

import pytest

from kauldron.files import write_atomically

SIZE = 1 << 22
# Writes one content after the other, until it is killed.
PROGRAM = f"""
import itertools, sys
from kauldron.files import write_atomically
for index in itertools.count():
    write_atomically(sys.argv[1], bytes([index % 256]) * {SIZE})
    if index == 0:
        print("begun", flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_killed_writer_leaves_a_whole_file(tmp_path, seed):
    path = tmp_path / "file"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=random.Random(seed).uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
    content = path.read_bytes()
    assert content == content[:1] * SIZE


def test_failed_write_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "file"
    write_atomically(path, "old ü")

    def fail(file_descriptor):
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old ü"
    assert list(path.parent.iterdir()) == [path]
