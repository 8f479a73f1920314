"""The small files that describe a run, and the lock on its folder.

Each file is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flax
import jax
from etils import epath

import kauldron
from kauldron import konfig, status
from kauldron.data.model_inputs import spec_from_json
from kauldron.errors import a_type, error_prefix
from kauldron.files import file_lock, write_atomically
from kauldron.konfig.overrides.config_files import importable_folders
from kauldron.train.run import preemption

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
    with error_prefix(f"{path}: "):
        changes = konfig.diff(json.loads(old_text), json.loads(text))
    if changes:
        status.log(f"The config differs from that of the earlier start:\n{changes}")


def write_config(trainer: Trainer, *, step: int) -> bool:
    """Write `config.json` and keep the earlier one; return whether it has changed."""
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


def write_run_info(trainer: Trainer, *, step: int, is_resumed: bool) -> None:
    """Add this start to `run_info.json`."""
    earlier = read_run_info(trainer.workdir)
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
        "saved_step": step if is_resumed else earlier["saved_step"],
        "first_step": first_step(trainer.workdir, step, is_resumed=is_resumed),
        "starts": [*earlier["starts"], {"time": time.time(), "step": step}],
        "end": None,
    }
    _write_run_info(trainer.workdir, info)


def _write_run_info(workdir: epath.Path, info: dict[str, Any]) -> None:
    write_atomically(workdir / RUN_INFO_FILENAME, json.dumps(info, indent=2))


def first_step(workdir: epath.Path, step: int, *, is_resumed: bool) -> int:
    """Return the step that the run began with, before a start at `step`."""
    info = read_run_info(workdir)
    if info["first_step"] is not None:
        return info["first_step"]
    if info["starts"]:
        return info["starts"][0]["step"]
    return 0 if is_resumed else step  # what is known of the starts was lost


def read_run_info(workdir: epath.Path) -> dict[str, Any]:
    """Return `run_info.json`, with at least the earlier starts and the saved step."""
    nothing: dict[str, Any] = {"starts": [], "saved_step": None, "first_step": None}
    path = workdir / RUN_INFO_FILENAME
    if not path.exists():
        return nothing
    try:
        info = {**nothing, **json.loads(path.read_bytes())}
        _check_run_info(info)
    except (ValueError, KeyError, TypeError) as error:
        status.log_warning(f"{path} cannot be read and is ignored: {error!r}")
        return nothing
    return info


def _check_run_info(info: Any) -> None:
    """Raise `TypeError` or `KeyError` unless it has the starts and the saved step."""
    steps = [start["step"] for start in info["starts"]]
    noted = [info.get(name) for name in ("saved_step", "first_step")]
    steps += [step for step in noted if step is not None]
    if not all(isinstance(step, int) for step in steps):
        raise TypeError(f"these are not steps: {steps}")


def note_saved(workdir: epath.Path, step: int) -> None:
    """Note in `run_info.json` that there is a checkpoint.

    A later start that finds none then knows that checkpoints are missing.
    """
    _write_run_info(workdir, {**read_run_info(workdir), "saved_step": step})


def note_end(workdir: epath.Path, *, error: BaseException | None, step: int) -> None:
    """Note in `run_info.json` how this start ended; a process that is killed cannot."""
    info = read_run_info(workdir)
    if "end" not in info:  # it did not come to write that it started
        return
    end = {"time": time.time(), "step": step, **_describe_end(workdir, error)}
    _write_run_info(workdir, {**info, "end": end})


def _describe_end(workdir: epath.Path, error: BaseException | None) -> dict[str, str]:
    if isinstance(error, preemption.Preempted):
        return {"reason": "preempted"}
    if isinstance(error, KeyboardInterrupt):
        return {"reason": "interrupted"}
    if error is not None:
        text = str(error).strip().splitlines() or [""]
        kind = type(error).__name__
        return {"reason": "error", "error": kind, "detail": text[0][:500]}
    marker = read_train_complete(workdir)
    if marker is None:
        detail = "the last step could not be saved"
        return {"reason": "error", "error": "", "detail": detail}
    if "stopped_because" in marker:
        return {"reason": "early stopping", "detail": marker["stopped_because"]}
    return {"reason": "done"}


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
# What an earlier start left, where this one cannot go on from it
#


UNREADABLE_MARK = ".unreadable"


def set_aside_unreadable(workdir: epath.Path) -> None:
    """Rename the files that cannot be read: the run goes on without them."""
    for name, check in _CHECKS.items():
        path = workdir / name
        if not path.exists():
            continue
        try:
            check(json.loads(path.read_bytes()))
        except (ValueError, KeyError, TypeError) as error:
            aside = path.replace(workdir / f"{name}{UNREADABLE_MARK}")
            status.log_warning(f"{path} cannot be read; moved to {aside}: {error!r}")


def _check_config(content: Any) -> None:
    if not isinstance(content, dict):
        raise TypeError(f"{a_type(content)} is not a config")


_CHECKS = {CONFIG_FILENAME: _check_config, RUN_INFO_FILENAME: _check_run_info}


def saved_step(workdir: epath.Path) -> int | None:
    """Return a step that an earlier start saved; `None` if it saved none."""
    info = read_run_info(workdir)
    steps = [start["step"] for start in info["starts"]]
    marker = read_train_complete(workdir) or {}
    known = [info["saved_step"], marker.get("step")]
    known += [step for step in steps if step > steps[0]]
    if (workdir / f"{RUN_INFO_FILENAME}{UNREADABLE_MARK}").exists():
        known.append(0)
    return max((step for step in known if isinstance(step, int)), default=None)


def earlier_folder(workdir: epath.Path) -> epath.Path:
    """Return the name of a new folder that an earlier log can be moved to."""
    numbers = itertools.count(1)
    folders = (workdir / f"earlier_{number}" for number in numbers)
    return next(folder for folder in folders if not folder.exists())


def move_log(trainer: Trainer, target: epath.Path) -> None:
    """Move what earlier starts logged, and their progress, to another folder."""
    target.mkdir(parents=True)
    for path in list(trainer.workdir.iterdir()):
        if path.name.startswith(_RECORDS) or _is_collection(path, trainer):
            path.rename(target / path.name)


_RECORDS = (RUN_INFO_FILENAME, TRAIN_COMPLETE_FILENAME, "_eval_")


def _is_collection(path: epath.Path, trainer: Trainer) -> bool:
    inner = tuple(f"{name}." for name in trainer.evals)  # evaluators that train
    names = ("train", "array_dumps", *trainer.evals)
    return path.is_dir() and (path.name in names or path.name.startswith(inner))


#
# The completion marker
#


def write_train_complete(
    trainer: Trainer,
    *,
    step: int,
    final_evals: Sequence[str],
    stopped_by: str | None = None,
) -> None:
    """Mark the run as complete; standalone evaluations then stop."""
    content: dict[str, Any] = {
        "step": step,
        "num_train_steps": trainer.num_train_steps,
        "final_evals": list(final_evals),
    }
    if stopped_by is not None:
        content["stopped_because"] = stopped_by
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
        is_right = isinstance(content.get("final_evals", []), list)
    except (ValueError, AttributeError):  # empty in older workdirs, or damaged
        return {}
    return content if is_right else {}


def remove_train_complete(workdir: epath.PathLike) -> None:
    """Remove the marker, because the run goes on."""
    (epath.Path(workdir) / TRAIN_COMPLETE_FILENAME).unlink(missing_ok=True)


#
# One training job per workdir
#


LOCK_FILENAME = "train.lock"


def workdir_lock(workdir: epath.Path) -> contextlib.AbstractContextManager[None]:
    """Keep other training jobs out of the workdir inside the block."""
    return file_lock(
        workdir / LOCK_FILENAME,
        problem=f"Another training job uses {workdir}",
        advice="set another `cfg.workdir`",
    )


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
