"""The small files that describe a run, and the lock on its folder.

Each file is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import flax
import jax
from etils import epath

import kauldron
from kauldron import konfig, status
from kauldron.data.model_inputs import spec_from_json
from kauldron.errors import error_prefix
from kauldron.files import file_lock, write_atomically
from kauldron.konfig.overrides.config_files import importable_folders

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer


CONFIG_FILENAME = "config.json"
ELEMENT_SPEC_FILENAME = "element_spec.json"
TRAIN_COMPLETE_FILENAME = "train_complete.txt"
RUN_INFO_FILENAME = "run_info.json"


def show_config_changes(trainer: Trainer) -> None:
    """Log what differs from the config of an earlier start in the same workdir."""
    path = trainer.workdir / CONFIG_FILENAME
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
    path = trainer.workdir / CONFIG_FILENAME
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
    write_atomically(trainer.workdir / ELEMENT_SPEC_FILENAME, text)


def read_element_spec(workdir: epath.PathLike) -> Any:
    """Return specs of a (global) batch of the run in a folder."""
    path = epath.Path(workdir) / ELEMENT_SPEC_FILENAME
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


@contextlib.contextmanager
def workdir_lock(workdir: epath.Path) -> Iterator[None]:
    """Keep other training jobs out of the workdir for the time of the block."""
    with file_lock(
        workdir / LOCK_FILENAME,
        problem=f"Another training job uses {workdir}",
        advice="set another `cfg.workdir`",
    ):
        yield


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
