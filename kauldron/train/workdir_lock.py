"""One training job per workdir."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator

from etils import epath

LOCK_FILENAME = "train.lock"


@contextlib.contextmanager
def workdir_lock(workdir: epath.Path) -> Iterator[None]:
    """Keep other training jobs out of the workdir for the time of the block.

    The operating system holds the lock and drops it when the process ends, however it
    ends. Remote file systems without such locks are not protected.
    """
    if "://" in str(workdir):
        yield
        return
    path = os.path.join(os.fspath(workdir), LOCK_FILENAME)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"Another training job uses {workdir}: {_describe(path)}. Stop it, or "
                "set another `cfg.workdir`."
            ) from None
        file.truncate(0)
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        file.write(json.dumps(owner))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _describe(path: str) -> str:
    try:
        with open(path) as file:
            owner = json.load(file)
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["time"]))
        return f"process {owner['pid']} on {owner['host']}, started {started}"
    except (OSError, ValueError, KeyError):
        return f"see {path}"
