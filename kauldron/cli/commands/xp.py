"""`kauldron xp ...`: look at experiments that were launched, stop and resume them."""

from __future__ import annotations

import argparse
import collections
import math
import pathlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.commands.launch import exit_code, user_errors
from kauldron.cli.terminal import UsageError, print_json, print_table
from kauldron.kxm import records
from kauldron.kxm.engines.display import HEADER, drawn, row_of, table
from kauldron.kxm.handle import (
    ExperimentHandle,
    WorkUnitHandle,
    get_experiment,
    list_experiments,
)

_POLL_SECONDS = 0.2
_REFRESH_SECONDS = 1.0


class _OnExperiment(Implementation):
    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("xid", help="the id of the experiment, or its folder")


class _OnUnits(_OnExperiment):
    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnExperiment.add_arguments(parser)
        parser.add_argument("wids", nargs="?", help="work units: 3, 2,5 or 5-8")


def _find(args: argparse.Namespace) -> ExperimentHandle:
    with user_errors():
        handle = get_experiment(args.xid)
        _ = handle.record  # which may be damaged
        return handle


def parse_wids(text: str | None) -> list[int] | None:
    """Return the numbers of work units that a text lists.

    Example:
      >>> parse_wids("2,5-8")
      [2, 5, 6, 7, 8]
    """
    if text is None:
        return None
    wids: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{text!r}: write work units as 3, 2,5 or 5-8.")
        wids += range(int(first), int(last or first) + 1)
    return wids


def _units(
    handle: ExperimentHandle, wids: Iterable[int] | None
) -> list[WorkUnitHandle]:
    with user_errors():
        return handle.units(wids)


class List(Implementation):
    """List the experiments of the registry."""

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        found = list_experiments()
        if args.json:
            print_json(
                [
                    {
                        "xid": handle.xid,
                        "name": handle.name,
                        "states": handle.status(),
                        "created": handle.record["created"],
                        "tags": handle.tags,
                        "note": handle.note,
                        "folder": str(handle.xp_dir),
                    }
                    for handle in found
                ]
            )
            return OK
        if not found:
            print(f"No experiments in {records.registry()}.")
            return OK
        rows = [
            (
                str(handle.xid),
                handle.name,
                ", ".join(f"{n} {state}" for state, n in handle.status().items()),
                _age(handle.record["created"]),
                str(handle.xp_dir),
            )
            for handle in found
        ]
        print_table(rows, header=("id", "name", "work units", "age", "folder"))
        return OK


def _age(created: float) -> str:
    seconds = max(0.0, time.time() - created)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


class Status(_OnUnits):
    """Show the work units of an experiment: state, progress, metrics."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnUnits.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print a JSON list")
        parser.add_argument(
            "--watch",
            action="store_true",
            help="keep the table up to date until the end",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        handle = _find(args)
        handle.refresh()
        units = _units(handle, parse_wids(args.wids))
        if args.json:
            print_json([_as_json(unit) for unit in units])
        elif args.watch and sys.stdout.isatty():
            _watch(handle)
        elif sys.stdout.isatty():
            import rich

            rich.print(drawn([row_of(unit) for unit in units]))
        else:
            print_table([row_of(unit) for unit in units], header=HEADER)
        return OK


def _as_json(unit: WorkUnitHandle) -> dict[str, Any]:
    return {
        "wid": unit.wid,
        "state": unit.state,
        "sweep": unit.sweep,
        "workdir": unit.workdir,
        "jobs": unit.jobs,
        "scalars": {name: value for name, (_, value) in unit.scalars().items()},
    }


def _watch(handle: ExperimentHandle) -> None:
    from rich.live import Live

    with Live(table(handle), auto_refresh=False) as live:
        while not handle.is_done():
            time.sleep(_REFRESH_SECONDS)
            live.update(table(handle), refresh=True)


class Logs(_OnExperiment):
    """Print the log of a job."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnExperiment.add_arguments(parser)
        parser.add_argument("wid", nargs="?", type=int, default=1, help="the work unit")
        parser.add_argument("job", nargs="?", help="the job; by default the first")
        parser.add_argument(
            "-f",
            "--follow",
            action="store_true",
            help="print what is added, until the job has ended",
        )
        parser.add_argument("-n", type=int, help="only the last N lines")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        handle = _find(args)
        [unit] = _units(handle, [args.wid])
        jobs = unit.job_names
        if args.job is not None and args.job not in jobs:
            raise UsageError(
                f"Work unit {args.wid} has no job {args.job!r}. It has {', '.join(jobs)}."
            )
        path = unit.log_path(args.job)
        job = args.job or jobs[0]
        if not args.follow and not path.exists():
            raise UsageError(
                f"{job} of work unit {args.wid} has no log yet: there is no {path}."
            )
        text, position = _read_from(path, 0)
        lines = text.splitlines(keepends=True)
        last = None if args.n is None else max(args.n, 0)
        sys.stdout.writelines(collections.deque(lines, maxlen=last))
        is_done = not args.follow
        while not is_done:
            is_done = unit.jobs[job]["state"] in records.FINAL
            text, position = _read_from(path, position)
            sys.stdout.write(text)
            sys.stdout.flush()
            if not is_done:
                time.sleep(_POLL_SECONDS)
        return OK


def _read_from(path: pathlib.Path, position: int) -> tuple[str, int]:
    """Return what a log holds from a position on, and where it ends."""
    if not path.exists():
        return "", position
    with path.open("rb") as file:
        file.seek(position)
        data = file.read()
    return data.decode("utf-8", "replace"), position + len(data)


class Stop(_OnUnits):
    """Tell work units to save and stop."""

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        handle = _find(args)
        with user_errors():
            told = handle.stop(parse_wids(args.wids))
        plural = "" if len(told) == 1 else "s"
        print(f"Told {len(told)} work unit{plural} to save and stop.")
        return OK


class Resume(_OnUnits):
    """Run the work units that did not succeed, where they stopped."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnUnits.add_arguments(parser)
        parser.add_argument("--wid", help="the same as the argument wids")
        parser.add_argument(
            "--failed-only", action="store_true", help="only those that failed"
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        handle = _find(args)
        wids = parse_wids(args.wids or args.wid)
        with user_errors():
            resumed = handle.unfinished(wids, failed_only=args.failed_only)
            if not resumed:
                print("There is nothing to resume.")
                return OK
            handle.resume(wids, failed_only=args.failed_only)
        return exit_code(handle, resumed)


class Best(_OnExperiment):
    """List the work units by a metric, the best first."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnExperiment.add_arguments(parser)
        parser.add_argument("--metric", help="such as eval/metrics/accuracy")
        parser.add_argument(
            "--goal",
            choices=("min", "max"),
            help="which value is best (default: that of the search, or judged by the "
            "name of the metric)",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        handle = _find(args)
        search = records.read_json(
            records.private(handle.xp_dir) / "search.json", {"metric": None}
        )
        metric = args.metric or search["metric"]
        if metric is None:
            raise UsageError(
                "Best by what? Give a metric, such as --metric=test/metrics/accuracy."
            )
        with user_errors():
            rows = handle.results(metric)
        goal = args.goal or (search["goal"] if metric == search["metric"] else None)
        if goal is None:
            from kauldron.inspect.run_table import smaller_is_better

            goal = "min" if smaller_is_better(metric) else "max"
        shown_of = {unit.wid: unit.ui for unit in handle.work_units}
        sign = -1 if goal == "max" else 1
        rows.sort(key=lambda row: (math.isnan(row["value"]), sign * row["value"]))
        shown = [
            (
                str(row["wid"]),
                f"{row['value']:.6g}",
                str(row["step"]),
                ", ".join(f"{k}={v}" for k, v in shown_of[row["wid"]].items()),
            )
            for row in rows
        ]
        print_table(shown, header=("unit", metric, "step", "sweep"))
        return OK


class Show(_OnExperiment):
    """Print the record of an experiment."""

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        print_json(_find(args).record)
        return OK


class Note(_OnExperiment):
    """Change the note of an experiment."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        _OnExperiment.add_arguments(parser)
        parser.add_argument("text", nargs="+", help="the note")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        _find(args).set_note(" ".join(args.text))
        return OK
