"""What a launcher shows while jobs run.

A single job: what its program prints. Several: in a terminal a table of the work units
that is kept up to date, elsewhere one line for each thing that happens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Self

from kauldron.errors import ignoring_gone_reader
from kauldron.kxm import records
from kauldron.kxm.engines.scheduler import Scheduler, Task
from kauldron.kxm.folders import sweep_text

if TYPE_CHECKING:
    from kauldron.kxm.handle import ExperimentHandle, WorkUnitHandle

_SUMMARY_SECONDS = 60.0
_TABLE_SECONDS = 1.0
_LAST_LINES = 20
_OTHER_ROWS = 4  # header, caption, the line above, the cursor


class Display:
    """Shows the progress of a scheduler."""

    def __init__(self, handle: ExperimentHandle, scheduler: Scheduler) -> None:
        self.handle = handle
        self.scheduler = scheduler
        self._shown = 0
        self._last = self._started = time.monotonic()
        self._log: IO[bytes] | None = None
        stream = scheduler.engine.stream
        self._streams = (len(scheduler.tasks) == 1 and stream is not False) or bool(
            stream
        )
        self._live: Any = None

    def __enter__(self) -> Self:
        tasks = self.scheduler.tasks
        with ignoring_gone_reader():
            print(f"Experiment {self.handle.xid} in {self.handle.xp_dir}", flush=True)
        if self._streams and tasks:
            path = records.log_path(tasks[0].unit.folder, tasks[0].job.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._log = path.open("rb")
            self._log.seek(0, 2)
        elif sys.stdout.isatty() and tasks:
            from rich.live import Live

            self._live = Live(table(self.handle, self.summary()), auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.update(is_last=True)
        if self._live is not None:
            self._live.stop()
        if self._log is not None:
            self._log.close()
        with ignoring_gone_reader():
            for task in self.scheduler.tasks:
                if task.state == records.FAILED and self._log is None:
                    self._show_end_of_log(task)
            print(self.summary(), flush=True)

    def update(self, *, is_last: bool = False) -> None:
        """Show what is new."""
        with ignoring_gone_reader():
            self._update(is_last)

    def _update(self, is_last: bool) -> None:
        events = self.scheduler.events[self._shown :]
        self._shown += len(events)
        now = time.monotonic()
        if self._log is not None:
            sys.stdout.write(self._log.read().decode("utf-8", "replace"))
            sys.stdout.flush()
        elif self._live is not None:
            if events or is_last or now - self._last > _TABLE_SECONDS:
                self._last = now
                self._live.update(table(self.handle, self.summary()), refresh=True)
        else:
            for at, task, event in events:
                print(_line(at, task, event), flush=True)
            if now - self._last > _SUMMARY_SECONDS:
                self._last = now
                print(self.summary(), flush=True)

    def summary(self) -> str:
        """Return how many work units are in which state, and how long it may take."""
        counts = self.handle.status()
        text = ", ".join(f"{count} {state}" for state, count in counts.items())
        total = sum(counts.values())
        ended = sum(counts.get(state, 0) for state in records.FINAL)
        if 0 < ended < total:
            left = (time.monotonic() - self._started) / ended * (total - ended)
            text += f"; {self._mean_duration()}about {_duration(left)} left"
        return f"Experiment {self.handle.xid}: {text or 'nothing to do'}"

    def _mean_duration(self) -> str:
        jobs = [job for unit in self.handle.work_units for job in unit.jobs.values()]
        spans = [
            job["ended"] - job["started"]
            for job in jobs
            if job.get("started") and job.get("ended")
        ]
        return f"{_duration(sum(spans) / len(spans))} a job, " if spans else ""

    def _show_end_of_log(self, task: Task) -> None:
        path = records.log_path(task.unit.folder, task.job.name)
        lines = path.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        print(f"Work unit {task.unit.wid}, {task.job.name} failed. The end of {path}:")
        print("\n".join(f"  {line}" for line in lines), flush=True)


def _line(at: float, task: Task, event: str) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(at))
    varies = sweep_text(task.unit.ui)
    text = f"{when} unit {task.unit.wid} {task.job.name}: {event}"
    return f"{text}  [{varies}]" if varies else text


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


#
# The table of work units
#

HEADER = ("unit", "state", "jobs", "step", "values", "sweep")


def table(handle: ExperimentHandle, caption: str | None = None) -> Any:
    """Return a table of the work units for `rich`; of many, those that matter most."""
    import rich

    # What ended comes third, the newest first, and what has not begun last.
    order = {records.RUNNING: 0, records.FAILED: 1, records.PENDING: 3}

    def place(row: tuple[str, ...]) -> tuple[int, int]:
        kind, number = order.get(row[1], 2), int(row[0])
        return kind, -number if kind == 2 else number

    most = max(1, rich.get_console().height - _OTHER_ROWS)
    rows = sorted(handle.rows(), key=place)[:most]
    return drawn(sorted(rows, key=lambda row: int(row[0])), caption)


def drawn(rows: Sequence[tuple[str, ...]], caption: str | None = None) -> Any:
    """Return the lines of `row_of` as a table for `rich`."""
    import rich
    from rich.table import Table
    from rich.text import Text

    console = rich.get_console()
    result = Table(box=None, header_style="bold", caption=caption)
    rows = [HEADER, *rows]
    if all(row[2].endswith(f":{row[1]}") and " " not in row[2] for row in rows[1:]):
        rows = [(*row[:2], *row[3:]) for row in rows]  # the state of the only job
    widest = [max(map(len, column)) for column in zip(*rows)]
    for name, width in zip(rows[0], widest):
        if name != "values":
            result.add_column(name, overflow="fold")
            continue
        # Cut where the rest needs the room: a sweep, or the reason of a failure.
        left = console.width - sum(widest) + width - 2 * len(widest)
        most = max(left, console.width // 3)
        result.add_column(name, overflow="ellipsis", no_wrap=True, max_width=most)
    for row in rows[1:]:
        result.add_row(*map(Text, row))
    return result


def row_of(unit: WorkUnitHandle) -> tuple[str, ...]:
    """Return the line of a work unit in a table; see `HEADER`."""
    jobs = unit.jobs
    scalars = unit.scalars()
    step = max((step for step, _ in scalars.values()), default=None)
    names = [n for n in scalars if "/metrics/" in n or n.endswith("losses/total")]
    shown = {name: scalars[name][1] for name in names[:3]}
    return (
        str(unit.wid),
        records.state_of_unit(jobs.values()),
        " ".join(f"{name}:{_job_text(status)}" for name, status in jobs.items()),
        "-" if step is None else str(step),
        "  ".join(f"{_short(name)}={value:.4g}" for name, value in shown.items()),
        ", ".join(f"{key}={value}" for key, value in _last_parts(unit.ui).items()),
    )


def _last_parts(ui: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what varies by the last parts of its paths, unless two have the same."""
    short = {path.rpartition(".")[2]: value for path, value in ui.items()}
    return short if len(short) == len(ui) else ui


def _short(name: str) -> str:
    return name.replace("/losses/total", "/loss").replace("/metrics/", "/")


def _job_text(status: dict[str, Any]) -> str:
    attempt = status.get("attempt", 0)
    text = status["state"] + (f"({attempt})" if attempt > 1 else "")
    told = (records.FAILED, records.STOPPED, records.RUNNING)
    if status["state"] in told and status.get("reason"):
        text += f" [{status['reason'][:60]}]"
    return text
