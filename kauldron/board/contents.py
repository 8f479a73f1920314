"""What the page shows, as plain data: every answer can be written as JSON."""

from __future__ import annotations

import hashlib
import math
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.board.media import Media
from kauldron.inspect.run_folder import Run, find_runs
from kauldron.inspect.run_table import (
    BEST,
    Column,
    KnownColumns,
    main_metrics,
    smaller_is_better,
)
from kauldron.inspect.scalar_log import ScalarLog, Series

# Logs up to this size together are read whole; of longer ones, evenly spaced lines.
_QUICK_BYTES = 8 << 20
_MOST_POINTS = 20_000  # of all curves of a chart
_LOG_TAIL_BYTES = 1 << 18
_MOST_HISTOGRAMS = 60


class Contents:
    """Answers about the runs of some folders.

    Args:
      folders: Workdirs, or folders of them. Only what is inside is ever read.
    """

    def __init__(self, *folders: str | os.PathLike[str]):
        self._folders = [pathlib.Path(folder).resolve() for folder in folders]
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._known = KnownColumns.of([])
        self._media: dict[str, Media] = {}

    #
    # Runs and numbers
    #

    def runs(self) -> dict[str, Any]:
        """Return all runs with their last values, and what the columns mean."""
        found = self._find()
        version = hashlib.sha1(repr([r.version for r in found.values()]).encode())
        known = self._known = KnownColumns.of(list(found.values()))
        fields, metrics = known.main_fields, list(known.metrics.values())
        important = {column.name for column in main_metrics(metrics)}
        return {
            "title": ", ".join(folder.name for folder in self._folders),
            "version": version.hexdigest(),
            "fields": [column.name for column in fields],
            "metrics": [
                {
                    "name": column.name,
                    "collection": column.path.partition("/")[0],
                    "main": column.name in important,
                    "smaller": smaller_is_better(column.path),
                }
                for column in metrics
            ],
            "runs": [_describe(name, r, fields, metrics) for name, r in found.items()],
        }

    def best(self) -> dict[str, dict[str, float | None]]:
        """Return the best value of each important metric of evaluations, by run."""
        found = self._find()
        known = KnownColumns.of(list(found.values()))
        columns = [column for column in known.choose_metrics(None) if column.is_best]
        return {
            name: {
                column.name.removesuffix(BEST): _rounded(value)
                for column in columns
                if (value := column.value(run)) is not None
            }
            for name, run in found.items()
        }

    def curves(
        self,
        metric: str,
        *,
        by: str = "step",
        first: float = -math.inf,
        last: float = math.inf,
    ) -> dict[str, dict[str, list[Any]]]:
        """Return the curve of a metric of each run, thinned to what a screen shows.

        Args:
          metric: A short name, as `runs` gives it.
          by: What the x axis is: `"step"`, or `"time"` in seconds since the start.
          first: Where the part to look at begins, in units of the x axis.
          last: Where it ends.

        Returns:
          `{"x": [...], "y": [...]}` by run; values that are not finite are `None`.

        Raises:
          KeyError: No run has such a metric.
        """
        if metric not in self._known.metrics:  # the page asks for all runs before
            self.runs()
        found, column = self._runs, self._known.find(metric)
        collection, _, scalar = column.path.partition("/")
        logs = {
            name: log
            for name, run in found.items()
            if (log := run.logs().get(collection)) is not None
        }
        points = max(100, min(800, _MOST_POINTS // max(1, len(logs))))
        is_quick = sum(log.version[1] for log in logs.values()) <= _QUICK_BYTES
        curves = {}
        for name, log in logs.items():
            start = found[name].started if by == "time" else 0
            series = _part(log, scalar, points, is_quick, by, start or 0.0, first, last)
            if series is not None and len(series.values):
                curves[name] = _as_lists(series, by, start or 0.0)
        return curves

    def config(self, run: str) -> dict[str, Any]:
        """Return the fields of the config of a run by path."""
        return self._run(run).config

    #
    # Pictures, histograms, texts
    #

    def media(self, run: str) -> list[dict[str, Any]]:
        """Return kind, tag and steps of the summaries of a run."""
        items = self._media_of(run).items()
        return [
            {"kind": kind, "tag": tag, "steps": list(by_step)}
            for (kind, tag), by_step in sorted(items.items())
        ]

    def item(self, run: str, kind: str, tag: str, step: int) -> Any:
        """Return a text, a histogram, or the bytes of a picture."""
        return self._media_of(run).load(kind, tag, step)

    def histograms(self, run: str, tag: str) -> list[dict[str, Any]]:
        """Return the histograms of a tag over the steps; of many, evenly spaced ones."""
        media = self._media_of(run)
        steps = list(media.items()["histogram", tag])
        count = min(len(steps), _MOST_HISTOGRAMS)
        chosen = [steps[i] for i in np.linspace(0, len(steps) - 1, count).astype(int)]
        return [{"step": s, **media.load("histogram", tag, s)} for s in chosen]

    #
    # Files
    #

    def files(self, run: str) -> dict[str, Any]:
        """Return the names of logs and traces of a run, and how large the logs are."""
        workdir = self._run(run).workdir
        logs = [*workdir.glob("logs/*"), *workdir.glob("*.log")]
        traces = workdir.glob("plugins/profile/*/*")
        names = self._relative(logs, workdir)
        return {
            "logs": names,
            "sizes": [(workdir / name).stat().st_size for name in names],
            "traces": self._relative(traces, workdir),
        }

    def log(self, run: str, name: str) -> str:
        """Return the end of a log."""
        path = self.file(run, "logs", name)
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
        return text if size <= _LOG_TAIL_BYTES else "…\n" + text.partition("\n")[2]

    def file(self, run: str, kind: str, name: str) -> pathlib.Path:
        """Return the path of a file that `files` lists; no other can be had."""
        if name not in self.files(run)[kind]:
            raise LookupError(f"{run} has no such file in its {kind}: {name}")
        return self._run(run).workdir / name

    def _relative(self, paths: Any, workdir: pathlib.Path) -> list[str]:
        """Leave out what a link leads to outside of the folders."""
        return sorted(
            path.relative_to(workdir).as_posix()
            for path in paths
            if path.is_file()
            and any(path.resolve().is_relative_to(root) for root in self._folders)
        )

    #
    # Which runs there are
    #

    def _find(self) -> dict[str, Run]:
        with self._lock:
            known = list(self._runs.values())
            found: dict[str, Run] = {}
            for folder in self._folders:
                for run in find_runs(folder, known):
                    name = run.name
                    if name in found and found[name] is not run:  # of another folder
                        name = f"{folder.parent.name}/{folder.name}/{run.name}"
                    found[name] = run
            self._runs = found
            return dict(found)

    def _run(self, name: str) -> Run:
        run = self._runs.get(name) or self._find().get(name)
        if run is None:
            raise LookupError(f"There is no run {name!r}.")
        return run

    def _media_of(self, name: str) -> Media:
        run = self._run(name)
        with self._lock:
            return self._media.setdefault(name, Media(run.workdir))


def _describe(
    name: str, run: Run, fields: Sequence[Column], metrics: Sequence[Column]
) -> dict[str, Any]:
    last, config, summary = run.last(), run.config, run.summary()
    return {
        "name": name,
        **summary,
        "speed": _rounded(summary["speed"]),
        "fields": {column.name: config.get(column.path) for column in fields},
        "values": {
            column.name: _rounded(last[column.path][1])
            for column in metrics
            if column.path in last
        },
    }


def _part(
    log: ScalarLog,
    name: str,
    points: int,
    is_quick: bool,
    by: str,
    start: float,
    first: float,
    last: float,
) -> Series | None:
    if not is_quick:
        return log.sampled(
            [name], points, first=first + start, last=last + start, by=by
        ).get(name)
    series = log.series([name]).get(name)
    if series is None:
        return None
    xs = (series.times if by == "time" else series.steps) - start
    begin = max(0, int(np.searchsorted(xs, first)) - 1)  # lines reach the edges
    end = int(np.searchsorted(xs, last, "right")) + 1
    return series[begin:end].thinned(points)


def _as_lists(series: Series, by: str, start: float) -> dict[str, list[Any]]:
    if by == "time":
        xs = np.round(series.times - start, 2).tolist()
    else:
        xs = series.steps.tolist()
    return {"x": xs, "y": [_rounded(value) for value in series.values.tolist()]}


def _rounded(value: float | None) -> float | None:
    """Return six digits, which no screen shows more of; `None` if not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
