"""The small files that describe a run, and the lock on its folder.

Each file is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import flax
import jax
from etils import epath

import kauldron
from kauldron import konfig
from kauldron.data.model_inputs import spec_from_json
from kauldron.errors import error_prefix
from kauldron.konfig.overrides.config_files import importable_folders
from kauldron.utils import constants, status
from kauldron.utils.whole_files import write_atomically

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


TRAIN_COMPLETE_FILENAME = "train_complete.txt"
RUN_INFO_FILENAME = "run_info.json"


def show_config_changes(trainer: Trainer) -> None:
    """Log what differs from the config of an earlier start in the same workdir."""
    path = trainer.workdir / constants.CONFIG_FILENAME
    if trainer.raw_cfg is None or not path.exists():
        return
    text = trainer.raw_cfg.to_json(indent=2)
    old_text = path.read_text()
    if old_text == text:
        return
    try:
        changes = konfig.diff(json.loads(old_text), json.loads(text))
    except ValueError as error:
        status.log_warning(f"{path} cannot be read: {error}")
        return
    if changes:
        status.log(f"The config differs from that of the earlier start:\n{changes}")


def write_config(trainer: Trainer, *, step: int) -> bool:
    """Write `config.json` if it is new or changed; keep the earlier one.

    Args:
      trainer: Whose `raw_cfg` to write.
      step: The step that the run starts from.

    Returns:
      Whether the file was written.
    """
    if trainer.raw_cfg is None:
        status.log(
            "The trainer was not built from a config: no config.json is written, and "
            "reloading the run will need the code that built it."
        )
        return False
    path = trainer.workdir / constants.CONFIG_FILENAME
    text = trainer.raw_cfg.to_json(indent=2)
    if path.exists():
        old_text = path.read_text()
        if old_text == text:
            return False
        earlier = trainer.workdir / f"config.{step}.json"
        if not earlier.exists():  # else the last start made no step
            write_atomically(earlier, old_text)
    write_atomically(path, text)
    return True


def write_element_spec(trainer: Trainer, global_spec: Any) -> None:
    """Write `element_spec.json`: what evaluations need to rebuild the state."""
    text = json.dumps(konfig.export(global_spec), indent=2)
    write_atomically(trainer.workdir / constants.ELEMENT_SPEC_FILENAME, text)


def read_element_spec(workdir: epath.PathLike) -> Any:
    """Return specs of a (global) batch of the run in a folder."""
    path = epath.Path(workdir) / constants.ELEMENT_SPEC_FILENAME
    text = path.read_text()
    with error_prefix(f"{path}: "):
        return spec_from_json(json.loads(text))


def write_run_info(trainer: Trainer, *, step: int) -> None:
    """Add this start to `run_info.json`."""
    path = trainer.workdir / RUN_INFO_FILENAME
    starts = read_starts(trainer.workdir)
    devices = jax.devices()
    info = {
        "python": sys.version.split()[0],
        "jax": jax.__version__,
        "flax": flax.__version__,
        "kauldron": kauldron.__version__,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "process_count": jax.process_count(),
        "command": sys.argv,
        "import_folders": importable_folders(),
        "tags": list(trainer.setup.tags),
        "note": _note(trainer),
        "starts": [*starts, {"time": time.time(), "step": step}],
    }
    write_atomically(path, json.dumps(info, indent=2))


def first_step(workdir: epath.Path, *, default: int) -> int:
    """Return the step that the very first start of the run began with."""
    starts = read_starts(workdir)
    return starts[0]["step"] if starts else default


def read_starts(workdir: epath.Path) -> list[dict[str, Any]]:
    """Return the time and step of each earlier start."""
    path = workdir / RUN_INFO_FILENAME
    if not path.exists():
        return []
    try:
        return json.loads(path.read_text())["starts"]
    except (ValueError, KeyError, TypeError) as error:
        status.log_warning(f"{path} cannot be read and is started again: {error!r}")
        return []


def _note(trainer: Trainer) -> str:
    template = trainer.setup.note_template
    if not template:
        return ""
    try:
        return template.format(cfg=trainer.raw_cfg)
    except Exception as error:
        status.log(f"setup.note_template {template!r} cannot be filled in: {error!r}")
        return template


#
# The completion marker
#


def write_train_complete(
    trainer: Trainer, *, step: int, final_evals: Sequence[str]
) -> None:
    """Mark the run as complete; standalone evaluations then stop."""
    content = {
        "step": step,
        "num_train_steps": trainer.num_train_steps,
        "final_evals": list(final_evals),
    }
    write_atomically(
        trainer.workdir / TRAIN_COMPLETE_FILENAME, json.dumps(content) + "\n"
    )


def read_train_complete(workdir: epath.PathLike) -> dict[str, Any] | None:
    """Return the marker's content, `{}` if empty; `None` if the run is not complete."""
    path = epath.Path(workdir) / TRAIN_COMPLETE_FILENAME
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError:  # empty in workdirs of older versions, or damaged
        return {}
    return content if isinstance(content, dict) else {}


def remove_train_complete(workdir: epath.PathLike) -> None:
    """Remove the marker, because the run goes on."""
    (epath.Path(workdir) / TRAIN_COMPLETE_FILENAME).unlink(missing_ok=True)


#
# One training job per workdir
#


LOCK_FILENAME = "train.lock"
_PATIENCE_SECS = 0.5


class InUseError(RuntimeError):
    """Another process has the lock."""


@contextlib.contextmanager
def workdir_lock(workdir: epath.Path) -> Iterator[None]:
    """Keep other training jobs out of the workdir for the time of the block."""
    with file_lock(
        workdir / LOCK_FILENAME,
        problem=f"Another training job uses {workdir}",
        advice="set another `cfg.workdir`",
    ):
        yield


@contextlib.contextmanager
def file_lock(
    path: epath.Path, *, problem: str, advice: str, **details: Any
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
    with open(path, "a+") as file:
        if not _try_to_lock(file):
            owner = describe_holder(path)
            raise InUseError(f"{problem}: {owner}. Stop it, or {advice}.")
        file.truncate(0)
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        file.write(json.dumps({**owner, **details}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _try_to_lock(file: IO[str]) -> bool:
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


def holder(path: epath.Path) -> dict[str, Any] | None:
    """Return what the process that holds a lock says of itself; `None` if none does."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    except OSError:  # there is no such file
        return None
    return None


def describe_holder(path: epath.Path) -> str:
    """Process, host and start time, for a message."""
    owner = _read(path)
    if not {"time", "pid", "host"} <= owner.keys():
        return f"see {path}"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["time"]))
    return f"process {owner['pid']} on {owner['host']}, started {started}"


def _read(path: epath.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


#
# Whether anything can be written
#


def make_writable(workdir: epath.Path) -> None:
    """Create the folder; find out now, not after the first hour, if nothing can be kept."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if "://" not in str(workdir):
            with tempfile.TemporaryFile(dir=workdir):
                pass
    except OSError as error:
        raise _cannot_be_written(workdir, error.errno or 0) from error


def check_writable(workdir: epath.Path) -> None:
    """Raise `OSError` if the folder cannot be made or written; nothing is changed."""
    if "://" in str(workdir):
        return
    folder = os.path.abspath(workdir)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise _cannot_be_written(workdir, errno.ENOTDIR)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot_be_written(workdir, errno.EACCES)


def _cannot_be_written(workdir: epath.Path, number: int) -> OSError:
    return OSError(
        number,
        "The workdir cannot be written; set another `cfg.workdir` "
        f"({os.strerror(number)})",
        str(workdir),
    )
