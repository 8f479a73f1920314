"""What is on disk about an experiment: ids, records, states.

The runner of every job imports this module, so it has to stay light.

    $KAULDRON_HOME/xids/<xid>.json       where the experiment with this id is
    <xp_dir>/.kxm/experiment.json        the experiment
    <xp_dir>/.kxm/events.jsonl           what happened, line by line
    <xp_dir>/.kxm/files/, config.py      copies of what the jobs need
    <wu_dir>/.kxm/work_unit.json         enough to run its jobs again (mode 0600)
    <wu_dir>/.kxm/status/<job>.json      the state of a job
    <wu_dir>/.kxm/stop                   someone asked the work unit to stop
    <wu_dir>/logs/<job>.log              what the program printed
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

Path = str | os.PathLike[str]

SCHEMA = 1
PRIVATE = ".kxm"

# States of a job. All but the first two are final.
PENDING, RUNNING = "pending", "running"
SUCCEEDED, FAILED = "succeeded", "failed"
STOPPED, SKIPPED, PRUNED = "stopped", "skipped", "pruned"
FINAL = (SUCCEEDED, FAILED, STOPPED, SKIPPED, PRUNED)

HEARTBEAT_SECONDS = 15.0  # between two signs of life of a runner
# Clocks differ, and network file systems are slow.
_LOST_SECONDS = 8 * HEARTBEAT_SECONDS

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


#
# Files that are whole or absent
#


def write_json(path: Path, data: Any, *, mode: int = 0o644) -> None:
    """Write a JSON file under a temporary name, then rename it."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def read_json(path: Path, default: Any = None) -> Any:
    """Return what a JSON file says, or `default` if it is not there."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise
        return default
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def without_secrets(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return environment variables with the values of secret ones hidden.

    Example:
      >>> without_secrets({"WANDB_API_KEY": "abc", "HOME": "/home/ada"})
      {'WANDB_API_KEY': '***', 'HOME': '/home/ada'}
    """
    return {k: "***" if _SECRET.search(k) else v for k, v in env.items()}


#
# Ids
#


def home() -> pathlib.Path:
    """Return the folder with the registry of experiments."""
    return pathlib.Path(os.environ.get("KAULDRON_HOME") or "~/.kauldron").expanduser()


def registry() -> pathlib.Path:
    """Return the folder with one file for each experiment id."""
    return home() / "xids"


def new_xid() -> int:
    """Take the next free id; two launchers never get the same one."""
    folder = registry()
    folder.mkdir(parents=True, exist_ok=True)
    xid = max(known_xids(), default=0) + 1
    while True:
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            os.close(os.open(folder / f"{xid}.json", flags, 0o644))
            return xid
        except FileExistsError:
            xid += 1


def known_xids() -> list[int]:
    """Return the ids in the registry, in order."""
    try:
        names = os.listdir(registry())
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def register(xid: int, xp_dir: Path, name: str) -> None:
    """Write where the experiment with an id is."""
    entry = {"schema": SCHEMA, "xid": xid, "xp_dir": str(xp_dir), "name": name}
    write_json(registry() / f"{xid}.json", {**entry, "created": time.time()})


def forget(xid: int) -> None:
    """Give back the id of an experiment that did not come to be."""
    (registry() / f"{xid}.json").unlink(missing_ok=True)


def find_xp_dir(xid_or_folder: int | str | os.PathLike[str]) -> pathlib.Path:
    """Return the folder of an experiment.

    Raises:
      LookupError: There is no such experiment.
    """
    text = os.fspath(xid_or_folder) if not isinstance(xid_or_folder, int) else None
    if text is not None and not text.isdecimal():
        folder = pathlib.Path(text).expanduser()
        for candidate in (folder, *folder.absolute().parents):
            if (candidate / PRIVATE / "experiment.json").is_file():
                return candidate.absolute()
        raise LookupError(f"{folder} is not the folder of an experiment.")
    xid = int(xid_or_folder)  # pyright: ignore[reportArgumentType]
    try:
        return pathlib.Path(read_json(registry() / f"{xid}.json")["xp_dir"])
    except (OSError, ValueError, KeyError):
        known = known_xids()
        listed = ", ".join(map(str, known[-10:])) or "none"
        raise LookupError(
            f"There is no experiment {xid} in {registry()}. Known: {listed}. "
            "KAULDRON_HOME chooses another registry; a folder works as well."
        ) from None


#
# Work units
#


def private(folder: Path) -> pathlib.Path:
    """Return the `.kxm` folder inside the folder of an experiment or work unit."""
    return pathlib.Path(folder) / PRIVATE


def read_unit(wu_dir: Path) -> dict[str, Any]:
    """Return the record of a work unit."""
    return read_json(private(wu_dir) / "work_unit.json")


def write_unit(wu_dir: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a work unit; it may hold secrets."""
    path = private(wu_dir) / "work_unit.json"
    write_json(path, {"schema": SCHEMA, **record}, mode=0o600)


def log_path(wu_dir: Path, job: str, rank: int = 0) -> pathlib.Path:
    """Return the log of a job; each further process of it has its own."""
    name = f"{job}.{rank}.log" if rank else f"{job}.log"
    return pathlib.Path(wu_dir) / "logs" / name


def read_status(wu_dir: Path, job: str) -> dict[str, Any]:
    """Return the status of a job; one that never started is `pending`."""
    fallback = {"state": PENDING, "attempt": 0, "restarts": 0}
    return read_json(private(wu_dir) / "status" / f"{job}.json", fallback)


def write_status(wu_dir: Path, job: str, **changes: Any) -> dict[str, Any]:
    """Update the status of a job and return it."""
    status = {**read_status(wu_dir, job), **changes, "updated": time.time()}
    path = private(wu_dir) / "status" / f"{job}.json"
    write_json(path, {"schema": SCHEMA, **status})
    return status


def set_state(
    xp_dir: Path,
    wid: int,
    wu_dir: Path,
    job: str,
    state: str,
    **changes: Any,
) -> dict[str, Any]:
    """Write a new state of a job, and the event that goes with it."""
    if state in FINAL:
        changes.setdefault("ended", time.time())
    event = changes.pop("event", state)
    status = write_status(wu_dir, job, state=state, **changes)
    details = {k: status[k] for k in ("returncode", "reason") if status.get(k)}
    add_event(xp_dir, event, wid, job, status["attempt"], **details)
    return status


def may_start(wu_dir: Path, after: Mapping[str, str]) -> bool:
    """Return whether the jobs that a job comes after are as far as it wants."""
    for other, what in after.items():
        state = read_status(wu_dir, other)["state"]
        if state != SUCCEEDED and (what, state) != ("started", RUNNING):
            return False
    return True


def reason_to_skip(wu_dir: Path, after: Mapping[str, str]) -> str | None:
    """Return which of the jobs that a job comes after ended badly, and how."""
    for other in after:
        state = read_status(wu_dir, other)["state"]
        if state in FINAL and state != SUCCEEDED:
            return f"{other} {state}"
    return None


def add_event(
    xp_dir: Path,
    event: str,
    wid: int | None = None,
    job: str | None = None,
    attempt: int | None = None,
    **details: Any,
) -> None:
    """Append a line to the events of an experiment."""
    line = {"time": time.time(), "wid": wid, "job": job, "attempt": attempt}
    text = json.dumps({**line, "event": event, **details}) + "\n"
    path = private(xp_dir) / "events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One write call in append mode: lines of several processes do not mix.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def read_events(xp_dir: Path) -> list[dict[str, Any]]:
    """Return the events of an experiment, oldest first."""
    try:
        text = (private(xp_dir) / "events.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines()]


def request_stop(wu_dir: Path) -> None:
    """Ask the runners of a work unit to stop, wherever they run."""
    (private(wu_dir) / "stop").touch()


def withdraw_stop(wu_dir: Path) -> None:
    """Take back `request_stop`."""
    (private(wu_dir) / "stop").unlink(missing_ok=True)


def is_stop_requested(wu_dir: Path) -> bool:
    """Return whether the work unit was asked to stop."""
    return (private(wu_dir) / "stop").exists()


def state_of_unit(statuses: Iterable[Mapping[str, Any]]) -> str:
    """Return the state of a work unit from the statuses of its jobs.

    Example:
      >>> state_of_unit([{"state": "failed"}, {"state": "skipped"}])
      'failed'
    """
    states = {status["state"] for status in statuses}
    order = (RUNNING, PENDING, FAILED, STOPPED, PRUNED)
    return next((state for state in order if state in states), SUCCEEDED)


#
# Processes
#


def is_alive(pid: int | None, host: str | None) -> bool | None:
    """Return whether a process runs; `None` if it is on another machine."""
    if not pid or host != socket.gethostname():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # a zombie is gone, even if nobody has collected it
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def is_heartbeat_lost(status: Mapping[str, Any]) -> bool:
    """Return whether a job that is said to run is gone, as far as one can tell from here."""
    if status["state"] != RUNNING:
        return False
    is_running = is_alive(status.get("pid"), status.get("host"))
    if is_running is not None:
        return not is_running
    # The process of a stack writes nothing between the start and the end of a unit.
    has_heartbeat = status.get("engine") != "stacked"
    age = time.time() - status.get("updated", 0.0)
    return has_heartbeat and age > _LOST_SECONDS


def launcher_lock(
    xp_dir: Path,
) -> contextlib.AbstractContextManager[None]:
    """Be the only process that runs the work units of an experiment.

    Raises:
      RuntimeError: Another process does so; says which.
    """
    from kauldron import files  # runners, which start quickly, seldom need it

    return files.file_lock(
        private(xp_dir) / "lock",
        problem=f"The experiment in {xp_dir} is being run",
        advice="wait for its end",
    )


def is_locked(xp_dir: Path) -> bool:
    """Return whether a process runs the work units of an experiment."""
    from kauldron import files

    return files.holder(private(xp_dir) / "lock") is not None
