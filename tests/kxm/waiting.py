"""Waiting for files and processes."""

import pathlib
import time


def poll(condition, *, seconds=30.0):
    """Return what `condition` gives, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)
    return result


def text(path):
    """The text of a file, empty if there is none."""
    path = pathlib.Path(path)
    return path.read_text() if path.exists() else ""
