"""Experiments that were launched: look at them, wait for them, stop and resume them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.kxm import records
from kauldron.kxm.engines import executor_from_json
from kauldron.kxm.engines.executor import Executor
from kauldron.kxm.engines.work_units import WorkUnit

if TYPE_CHECKING:
    from kauldron.inspect.scalar_log import ScalarLog


@dataclasses.dataclass(frozen=True)
class WorkUnitHandle:
    """A work unit that was launched.

    Attributes:
      folder: The folder with its records and logs.
      summary: What the record of the experiment says about it, which everyone may read;
        its own record holds the environment of its jobs, and is the owner's.
    """

    folder: pathlib.Path
    summary: Mapping[str, Any]

    @functools.cached_property
    def unit(self) -> WorkUnit:
        """What it runs."""
        return WorkUnit.read(self.folder)

    @property
    def wid(self) -> int:
        """Its number."""
        return self.summary["wid"]

    work_unit_id = wid

    @property
    def workdir(self) -> str:
        """The folder that its jobs write to."""
        return self.summary["workdir"]

    @property
    def sweep(self) -> dict[str, Any]:
        """From the name of a flag to its value in this work unit."""
        return dict(self._bound["sweep"])

    @property
    def ui(self) -> dict[str, Any]:
        """What is shown of the sweep."""
        return dict(self._bound["ui"])

    @property
    def _bound(self) -> dict[str, Any]:
        """The values, which a search gives to the work unit when it starts."""
        if self.summary["search"]:
            with contextlib.suppress(PermissionError):
                return records.read_unit(self.folder)
        return {**self.summary}

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """The status of each job."""
        return {name: self._status(name) for name in self.job_names}

    @property
    def job_names(self) -> list[str]:
        """The names of the jobs, in order."""
        return list(self.summary["jobs"])

    def _status(self, job: str) -> dict[str, Any]:
        status = records.read_status(self.folder, job)
        if not records.is_heartbeat_lost(status):
            return status
        if status.get("engine") in (None, "local", "stacked"):
            # Its runner was killed before it could write anything.
            return {**status, "state": records.STOPPED, "reason": "killed"}
        return {**status, "reason": "heartbeat lost"}  # its engine knows more: refresh

    @property
    def state(self) -> str:
        """The state of the work unit."""
        return records.state_of_unit(self.jobs.values())

    def log_path(self, job: str | None = None) -> pathlib.Path:
        """Return the log of a job; by default of the first."""
        return records.log_path(self.folder, job or self.job_names[0])

    def scalars(self) -> dict[str, tuple[int, float]]:
        """Return the newest value and step of each scalar: `train/losses/total`."""
        return last_scalars(pathlib.Path(self.workdir))


class ExperimentHandle:
    """An experiment that was launched.

    Args:
      xp_dir: Its folder.
    """

    def __init__(self, xp_dir: str | os.PathLike[str]) -> None:
        self.xp_dir = pathlib.Path(xp_dir)
        self._units: dict[pathlib.Path, WorkUnitHandle] = {}
        self._asked_at = -_ASK_SECONDS
        self.session: Any = None  # what the engine keeps in the process that launched

    @classmethod
    def of_nothing(cls) -> ExperimentHandle:
        """Return the handle of a dry run, which has no work units."""
        return _OfNothing(os.devnull)

    @property
    def record(self) -> dict[str, Any]:
        """What was launched."""
        return records.read_json(records.private(self.xp_dir) / "experiment.json")

    @property
    def xid(self) -> int:
        """The id."""
        return self.record["xid"]

    experiment_id = xid

    @property
    def name(self) -> str:
        """The name."""
        return self.record["name"]

    @property
    def tags(self) -> list[str]:
        """The tags, with those of the first training (`cfg.setup.tags`)."""
        return list(dict.fromkeys([*self.record["tags"], *self._run_info("tags", [])]))

    @property
    def note(self) -> str:
        """The note; if there is none, that of the first training."""
        return self.record["note"] or self._run_info("note", "")

    def _run_info(self, name: str, default: Any) -> Any:
        if not self.work_units:
            return default
        path = pathlib.Path(self.work_units[0].workdir, "run_info.json")
        return records.read_json(path, {}).get(name, default)

    @property
    def executor(self) -> Executor:
        """The engine that it was launched with."""
        return executor_from_json(self.record["executor"])

    @property
    def work_units(self) -> list[WorkUnitHandle]:
        """The work units, in order."""
        for summary in self.record["units"]:
            path = self.xp_dir / summary["folder"]
            self._units.setdefault(path, WorkUnitHandle(path, summary))
        return list(self._units.values())

    @property
    def wids(self) -> list[int]:
        """The numbers of the work units."""
        return [unit.wid for unit in self.work_units]

    def status(self) -> dict[str, int]:
        """Return how many work units are in each state."""
        self._refresh_at_times()
        return dict(Counter(unit.state for unit in self.work_units))

    def refresh(self) -> dict[tuple[int, str], str]:
        """Ask the engine about jobs that are not final, and write down which have ended.

        Returns:
          The states that the engine gives, by work unit and name of the job.
        """
        self._asked_at = time.monotonic()
        known = self.executor.poll(self)
        for (wid, job), (state, reason) in known.items():
            if state in records.FINAL:
                [unit] = self.units([wid])
                with contextlib.suppress(PermissionError):  # the folder of someone else
                    records.set_state(
                        self.xp_dir, wid, unit.folder, job, state, reason=reason
                    )
        self._note_lost_heartbeats()
        return {key: state for key, (state, _) in known.items()}

    def _note_lost_heartbeats(self) -> None:
        """Write, once for each attempt, that a job has vanished."""
        lost = []
        for unit in self.work_units:
            for job in unit.job_names:
                status = records.read_status(unit.folder, job)
                if records.is_heartbeat_lost(status):
                    lost.append((unit.wid, job, status["attempt"]))
        if not lost:
            return
        noted = {
            (event["wid"], event["job"], event["attempt"])
            for event in records.read_events(self.xp_dir)
            if event["event"] == "heartbeat-lost"
        }
        for key in lost:
            if key not in noted:
                with contextlib.suppress(PermissionError):  # the folder of someone else
                    records.add_event(self.xp_dir, "heartbeat-lost", *key)

    def _refresh_at_times(self) -> None:
        if time.monotonic() - self._asked_at > _ASK_SECONDS:
            self.refresh()

    def is_done(self) -> bool:
        """Return whether nothing runs or waits."""
        self._refresh_at_times()
        return all(unit.state in records.FINAL for unit in self.work_units)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
          timeout: Seconds.

        Returns:
          Whether all work units succeeded.
        """
        if self.work_units:
            self.executor.wait(self, timeout)
        return all(unit.state == records.SUCCEEDED for unit in self.work_units)

    def stop(self, wids: Iterable[int] | None = None) -> list[int]:
        """Tell work units to save and stop; by default all.

        Args:
          wids: Their numbers.

        Returns:
          The numbers of those that were told: all that had not ended.

        Raises:
          LookupError: There is no such work unit.
        """
        chosen = [unit for unit in self.units(wids) if unit.state not in records.FINAL]
        for handle in chosen:
            records.request_stop(handle.folder)
        self.executor.stop(self, [handle.unit for handle in chosen])
        return [handle.wid for handle in chosen]

    def resume(
        self,
        wids: Iterable[int] | None = None,
        *,
        failed_only: bool = False,
        wait: bool | None = None,
    ) -> ExperimentHandle:
        """Run the work units that did not succeed, in the same folders.

        Args:
          wids: Their numbers; by default all.
          failed_only: Only those that failed.
          wait: Whether to wait for the end; by default as the engine does.

        Raises:
          LookupError: There is no such work unit.
          RuntimeError: They are running.
        """
        from kauldron.kxm.launching import start

        if records.is_locked(self.xp_dir):
            with records.launcher_lock(self.xp_dir):  # says who runs it
                pass
        known = self.refresh()
        active = {
            wid for (wid, _), state in known.items() if state not in records.FINAL
        }
        unfinished = self.unfinished(wids, failed_only=failed_only)
        chosen = [handle for handle in unfinished if handle.wid not in active]
        if unfinished and not chosen:
            raise RuntimeError(
                f"The experiment {self.xid} is queued or running. `kauldron xp stop "
                f"{self.xid}` stops it."
            )
        for handle in chosen:
            records.withdraw_stop(handle.folder)
            for name, status in handle.jobs.items():
                if status["state"] != records.SUCCEEDED:
                    records.write_status(
                        handle.folder,
                        name,
                        state=records.PENDING,
                        restarts=0,
                        reason=None,
                    )
        units = [handle.unit for handle in chosen]
        return start(self, self.executor, units, wait=wait) if units else self

    def units(self, wids: Iterable[int] | None = None) -> list[WorkUnitHandle]:
        """Return the work units with these numbers; by default all.

        Raises:
          LookupError: There is no such work unit.
        """
        units = {unit.wid: unit for unit in self.work_units}
        chosen = list(units) if wids is None else list(wids)
        for wid in chosen:
            if wid not in units:
                known = f"1 to {max(units)}" if units else "none"
                raise LookupError(
                    f"The experiment {self.xid} has no work unit {wid}. It has {known}."
                )
        return [units[wid] for wid in chosen]

    def unfinished(
        self, wids: Iterable[int] | None = None, *, failed_only: bool = False
    ) -> list[WorkUnitHandle]:
        """Return the work units that did not succeed, or only those that failed."""
        wanted = (records.FAILED,) if failed_only else _UNFINISHED
        return [unit for unit in self.units(wids) if unit.state in wanted]

    def set_note(self, text: str) -> None:
        """Change the note."""
        path = records.private(self.xp_dir) / "experiment.json"
        records.write_json(path, {**self.record, "note": text})

    #
    # Results
    #

    def results(self, metric: str, reduce: str = "last") -> list[dict[str, Any]]:
        """Return the value of a metric for each work unit that has one.

        Args:
          metric: `<collection>/<scalar>`, such as `eval/metrics/accuracy`, in full or as
            tables show it (`eval/accuracy`), or the name of a value given to
            `kxm.report`.
          reduce: `last`, `min` or `max` over the steps.

        Returns:
          Dicts with `wid`, `sweep`, `value` and `step`.

        Raises:
          LookupError: No work unit has such a value; names those that there are.
        """
        from kauldron.inspect.run_table import short_metric_names  # imports numpy

        rows = []
        known = {name for unit in self.work_units for name in unit.scalars()}
        full = {
            short: name for name, short in short_metric_names(sorted(known)).items()
        }
        name = metric if metric in known else full.get(metric, metric)
        for unit in self.work_units:
            points = metric_points(unit.folder, pathlib.Path(unit.workdir), name)
            if not points:
                continue
            step, value = reduced(points, reduce)
            row = {"wid": unit.wid, "sweep": unit.sweep, "value": value, "step": step}
            rows.append(row)
        if not rows:
            listed = ", ".join(sorted(known)) or "none"
            raise LookupError(
                f"No work unit has a value {metric!r}. There are: {listed}."
            )
        return rows

    def best(self, metric: str, goal: str = "min") -> dict[str, Any]:
        """Return the row of `results` with the best value."""
        if goal not in ("min", "max"):
            raise ValueError(f"goal={goal!r}: expected 'min' or 'max'.")
        rows = [row for row in self.results(metric) if row["value"] == row["value"]]
        choose = min if goal == "min" else max
        return choose(rows, key=lambda row: row["value"])

    #
    # Display
    #

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table of the work units; see `display.HEADER`."""
        from kauldron.kxm.engines.display import row_of

        return [row_of(unit) for unit in self.work_units]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in self.status().items())
        return f"<Experiment {self.xid} {self.name}: {counts or 'nothing'}>"

    def _repr_html_(self) -> str:
        import html

        from kauldron.kxm.engines.display import HEADER

        def cells(values: Sequence[str], tag: str) -> str:
            inner = "".join(f"<{tag}>{html.escape(v)}</{tag}>" for v in values)
            return f"<tr>{inner}</tr>"

        rows = "".join(cells(row, "td") for row in self.rows())
        title = html.escape(repr(self))
        return f"<p>{title}</p><table>{cells(HEADER, 'th')}{rows}</table>"


class _OfNothing(ExperimentHandle):
    @property
    def record(self) -> dict[str, Any]:
        return {"xid": None, "name": "", "tags": [], "note": "", "units": []}

    def refresh(self) -> dict[tuple[int, str], str]:
        return {}


_ASK_SECONDS = 5.0  # between two questions to the engine

_UNFINISHED = (records.PENDING, records.RUNNING, records.FAILED, records.STOPPED)


def get_experiment(xid_or_folder: int | str | os.PathLike[str]) -> ExperimentHandle:
    """Return an experiment that was launched.

    Args:
      xid_or_folder: Its id, or its folder or one below it.

    Raises:
      LookupError: There is no such experiment.
    """
    return ExperimentHandle(records.find_xp_dir(xid_or_folder))


def list_experiments() -> list[ExperimentHandle]:
    """Return the experiments in the registry whose folders exist, oldest first."""
    found = []
    for xid in records.known_xids():
        try:
            handle = get_experiment(xid)
            _ = handle.record
        except (LookupError, OSError, ValueError):
            continue
        found.append(handle)
    return found


#
# Scalars that trainings and `kxm.report` wrote
#


def last_scalars(workdir: pathlib.Path) -> dict[str, tuple[int, float]]:
    """Return step and value of the newest scalars of each collection."""
    found: dict[str, tuple[int, float]] = {}
    if "://" in str(workdir):
        return found
    for path in sorted(workdir.glob("*/scalars.jsonl")):
        last = _log(path).last()
        found |= {f"{path.parent.name}/{name}": point for name, point in last.items()}
    return found | _reported(workdir).last()


def metric_points(
    folder: pathlib.Path, workdir: pathlib.Path, metric: str
) -> list[tuple[int, float]]:
    """Return steps and values of a metric, in the order they were written."""
    collection, _, scalar = metric.partition("/")
    found = _reported(folder).series([metric])
    if not found and scalar:
        found = _log(workdir / collection / "scalars.jsonl").series([scalar])
    return [
        (int(step), float(value))
        for series in found.values()
        for step, value in zip(series.steps, series.values)
    ]


def _reported(folder: pathlib.Path) -> ScalarLog:
    return _log(records.private(folder) / "result.jsonl")


def _log(path: pathlib.Path) -> ScalarLog:
    from kauldron.inspect.scalar_log import ScalarLog  # imports numpy

    return ScalarLog(path)


def reduced(points: Sequence[tuple[int, float]], reduce: str) -> tuple[int, float]:
    """Return one of the points: the last, or that with the extreme value."""
    if reduce == "last":
        return points[-1]
    if reduce not in ("min", "max"):
        raise ValueError(f"reduce={reduce!r}: expected 'last', 'min' or 'max'.")
    choose = min if reduce == "min" else max
    return choose(points, key=lambda point: point[1])


def report(**values: float) -> None:
    """Report numbers of a program other than a training, such as an objective.

    Does nothing outside of a work unit.

    Args:
      **values: The numbers by name; `step` is the step they belong to.

    Example:
      >>> report(loss=0.3)
    """
    folder = os.environ.get("KXM_WU_DIR")
    if not folder:
        return
    step = int(values.pop("step", 0))
    path = records.private(folder) / "result.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: float(value) for name, value in values.items()}
    line = {"step": step, "time": time.time(), "values": plain}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
