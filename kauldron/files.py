"""Files that are whole or absent whenever the process ends, and locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import time
import uuid
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etils import epath


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
      path: The file; folders that are missing are created.
      content: A text (written as UTF-8), or bytes.
    """
    from etils import epath  # locks do not need it, and launchers start quickly

    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    data = content.encode() if isinstance(content, str) else content
    try:
        with _named(path), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if hasattr(file, "fileno"):
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()


@contextlib.contextmanager
def _named(path: epath.PathLike) -> Iterator[None]:
    """Add the file to errors that do not tell it, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


#
# One process at a time
#


_PATIENCE_SECS = 0.5


class InUseError(RuntimeError):
    """Another process has the lock."""


@contextlib.contextmanager
def file_lock(
    path: epath.Path | pathlib.Path, *, problem: str, advice: str, **details: Any
) -> Iterator[None]:
    """Let only one process at a time into the block.

    The operating system holds the lock and drops it when the process ends, however it
    ends. Remote file systems without such locks are not protected.

    Args:
      path: The file to lock; tells host, process and start time of the holder.
      problem: What to report if another process holds it.
      advice: What to do besides stopping that process.
      **details: More to write into the file.
    """
    if "://" in str(path):
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        if not _try_to_lock(file):
            owner = describe_holder(path)
            raise InUseError(f"{problem}: {owner}. Stop it, or {advice}.")
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        with _named(path):
            file.truncate(0)
            file.write(json.dumps({**owner, **details}).encode())
        try:
            yield
        finally:
            file.truncate(0)


def _try_to_lock(file: IO[bytes]) -> bool:
    """Try for a while: a process that only asks for the holder locks it briefly."""
    deadline = time.monotonic() + _PATIENCE_SECS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PATIENCE_SECS / 20)


def holder(path: os.PathLike[str]) -> dict[str, Any] | None:
    """Return what the process that holds a lock says of itself; `None` if none does."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    except OSError:  # there is no such file
        return None
    return None


def describe_holder(path: os.PathLike[str]) -> str:
    """Return process, host and start time of the holder, for a message."""
    owner = _read(path)
    if not {"time", "pid", "host"} <= owner.keys():
        return f"see {path}"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["time"]))
    return f"process {owner['pid']} on {owner['host']}, started {started}"


def _read(path: os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path) as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return {}
