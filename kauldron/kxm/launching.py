"""From an experiment to running work units.

Everything is planned twice: once to find what is wrong, and again with the id that the
experiment got. Then the records are written and the work units handed to the engine.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import pathlib
import platform as python_platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import kauldron
from kauldron.errors import ignoring_gone_reader
from kauldron.kxm import command, folders, records
from kauldron.kxm.engines import executor_of
from kauldron.kxm.engines.dry_run import DryRun, describe, unit_lines
from kauldron.kxm.engines.executor import Executor
from kauldron.kxm.engines.work_units import WorkUnit
from kauldron.kxm.handle import ExperimentHandle, get_experiment
from kauldron.kxm.jobs import Job, Parameters
from kauldron.kxm.planning import adaptive_search

if TYPE_CHECKING:
    from kauldron.kxm.experiment import Experiment

_log = logging.getLogger("kauldron.kxm")


def launch(
    xp: Experiment,
    *,
    wait: bool | None = None,
    confirm: bool = False,
    announce: bool = False,
    dry: bool = False,
) -> ExperimentHandle:
    """Launch an experiment; see `Experiment.launch`."""
    with _each_warning_once():
        started = _prepare(xp, confirm=confirm, announce=announce, dry=dry)
    return start(*started, wait=wait) if started else ExperimentHandle.of_nothing()


@contextlib.contextmanager
def _each_warning_once() -> Iterator[None]:
    """Show a warning once, though everything is planned twice."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_known = text in seen
        seen.add(text)
        return not is_known

    _log.addFilter(is_new)
    try:
        yield
    finally:
        _log.removeFilter(is_new)


def _prepare(
    xp: Experiment, *, confirm: bool, announce: bool, dry: bool
) -> tuple[ExperimentHandle, Executor, list[WorkUnit]] | None:
    """Check everything and write the records; return None if nothing is to start."""
    executor = xp.common_executor
    existing = get_experiment(xp.xid) if xp.xid is not None else None
    first_wid = 1 + (max(existing.wids, default=0) if existing else 0)
    created = time.time()
    planned = xp.work_units(created=created, first_wid=first_wid)
    executor.validate(planned)
    if dry or isinstance(executor, DryRun):
        print(describe(planned, executor, name=xp.full_name))
        return None
    if announce or confirm:
        with ignoring_gone_reader():
            print("\n".join(unit_lines(planned)), flush=True)
    if confirm and input("Launch? [y/N] ").strip().lower() not in ("y", "yes"):
        raise SystemExit("Nothing was launched.")
    if existing is not None:
        return existing, executor, _add_to(existing, xp, first_wid)
    return _create(xp, executor, created)


def _add_to(
    existing: ExperimentHandle, xp: Experiment, first_wid: int
) -> list[WorkUnit]:
    """Write the records of work units that are added to an experiment."""
    created = existing.record["created"]
    units = xp.work_units(xid=existing.xid, created=created, first_wid=first_wid)
    if units[0].xp_dir != existing.xp_dir:
        raise ValueError(
            f"The experiment {existing.xid} is in {existing.xp_dir}, but its work units "
            f"would go to {units[0].xp_dir}. Give the root_dir and subdir_format that it "
            "was made with."
        )
    _write(units)
    record = {
        **existing.record,
        "num_work_units": len(existing.wids) + len(units),
        "units": [*existing.record["units"], *map(_summary, units)],
    }
    records.write_json(records.private(existing.xp_dir) / "experiment.json", record)
    return units


def _create(
    xp: Experiment, executor: Executor, created: float
) -> tuple[ExperimentHandle, Executor, list[WorkUnit]]:
    """Take an id and write the records."""
    xid = records.new_xid()
    made: pathlib.Path | None = None
    try:
        units = xp.work_units(xid=xid, created=created)
        xp_dir = units[0].xp_dir
        if (records.private(xp_dir) / "experiment.json").exists():
            raise FileExistsError(
                f"There is an experiment in {xp_dir} already. Use {{xid}} in "
                "subdir_format.xp_dirname."
            )
        made = None if xp_dir.exists() else xp_dir  # what to remove if this fails
        _write(units)
        _write_experiment(xp, xid, executor, units, created)
        if xp.snapshot:
            command.copy_code(
                command.code_top(xp),
                command.code_folder(xp_dir),
                without=xp.dir_builder.root_dir,
            )
        records.register(xid, xp_dir, xp.full_name)
    except BaseException:
        records.forget(xid)
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise
    handle = ExperimentHandle(xp_dir)
    xp.jobs_provider.experiment_creation(handle)
    return handle, executor, units


def start(
    handle: ExperimentHandle,
    executor: Executor,
    units: list[WorkUnit],
    *,
    wait: bool | None,
) -> ExperimentHandle:
    """Hand work units to the engine, and wait if that is wanted."""
    executor.submit(handle, units)
    if executor.waits if wait is None else wait:
        executor.wait(handle)
    return handle


def _write(units: list[WorkUnit]) -> None:
    copies = {c: s for u in units for j in u.jobs.values() for c, s in j.files.items()}
    for copy, source in copies.items():
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(source, copy)
    # Each record waits for the disk, which can take many at once.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(_write_unit, units))
    for unit in units:
        records.add_event(unit.xp_dir, "created", unit.wid)


def _write_unit(unit: WorkUnit) -> None:
    for job in unit.jobs.values():
        for path, content in job.texts.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            pathlib.Path(path).write_text(content, encoding="utf-8")
    unit.write()


def _write_experiment(
    xp: Experiment,
    xid: int,
    executor: Executor,
    units: list[WorkUnit],
    created: float,
) -> None:
    folder = records.private(units[0].xp_dir)
    provider = xp.cfg_provider
    config_path = provider.path if provider else None
    cwd = os.getcwd()
    commit = command.git(cwd, "rev-parse", "HEAD")
    record = {
        "schema": records.SCHEMA,
        "xid": xid,
        "name": xp.full_name,
        "author": folders.login_name(),
        "created": created,
        "tags": xp.all_tags,
        "note": xp.note,
        "aux": _json(xp.aux),
        "argv": [_without_secret(argument) for argument in sys.argv],
        "cwd": cwd,
        "python": sys.executable,
        "versions": {
            "python": python_platform.python_version(),
            "kauldron": kauldron.__version__,
        },
        "git": commit
        and {
            "commit": commit.strip(),
            "dirty": bool(command.git(cwd, "status", "--porcelain")),
        },
        "config_path": config_path,
        "config_parameter": provider.config_parameter if provider else None,
        "overrides": _json(provider.overrides) if provider else {},
        "sweep": _json(xp.sweep),
        "executor": executor.to_json(),
        "num_work_units": len(units),
        "units": [_summary(unit) for unit in units],
        "jobs": {n: _job_record(job) for n, job in xp.resolved_jobs.items()},
    }
    records.write_json(folder / "experiment.json", record)
    parts = [xp, *xp.resolved_jobs.values()]
    text = "\n\n".join(map(repr, parts))
    search = xp.linked_sweep.adaptive and adaptive_search(xp, xp.linked_sweep)
    if search:
        records.write_json(folder / "search.json", search.to_json())
    for part in parts:
        for name, value in part.env_vars.items():
            if records.without_secrets({name: value})[name] != value:
                text = text.replace(str(value), "***")
    (folder / "experiment.txt").write_text(text + "\n", encoding="utf-8")
    if config_path is not None and config_path.endswith(".py"):
        shutil.copy(config_path, folder / "config.py")


def _summary(unit: WorkUnit) -> dict[str, Any]:
    """Return what everyone may know about a work unit."""
    return {
        "wid": unit.wid,
        "folder": os.path.relpath(unit.folder, unit.xp_dir),
        "workdir": unit.workdir,
        "jobs": list(unit.jobs),
        "sweep": dict(unit.sweep),
        "ui": {key: str(value) for key, value in unit.ui.items()},
        "search": unit.search,
    }


def _without_secret(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{name}{equals}{records.without_secrets({name: value})[name]}"


def _job_record(job: Job) -> dict[str, Any]:
    explicit = dict(job.explicit)
    if "env_vars" in explicit:
        explicit["env_vars"] = records.without_secrets(explicit["env_vars"])
    if "executor" in explicit:
        explicit["executor"] = type(executor_of(job.executor)).__name__
    return _json(explicit)


def _json(value: Any) -> Any:
    """Return a value for the record; what JSON does not know as text."""
    if isinstance(value, Parameters):
        return _json(value.explicit)
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    try:
        return command.plain(value)
    except TypeError:
        return repr(value)
