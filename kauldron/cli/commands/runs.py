"""`kauldron runs`."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
from typing import Any

from kauldron.cli.command_table import OK
from kauldron.cli.terminal import UsageError, print_json, print_table
from kauldron.files import holder

_DEEPEST = 4
_LONGEST_LINE = 1 << 18


class Runs:
    """List workdirs with their last step, values and state."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "folder",
            nargs="?",
            default=".",
            help="where to look for workdirs (default: .)",
        )
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        root = pathlib.Path(args.folder)
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder.")
        runs = [_describe(workdir, root) for workdir in sorted(_find_workdirs(root))]
        if args.json:
            print_json(runs)
        elif runs:
            rows = [
                (
                    run["workdir"],
                    run["state"],
                    "-" if run["step"] is None else str(run["step"]),
                    run["last_start"] or "-",
                    "  ".join(
                        f"{name}={value}" for name, value in run["values"].items()
                    ),
                )
                for run in runs
            ]
            print_table(
                rows, header=("workdir", "state", "step", "last start", "values")
            )
        else:
            print(f"No runs below {root}.")
        return OK


def _find_workdirs(root: pathlib.Path) -> list[pathlib.Path]:
    patterns = [
        "/".join(["*"] * depth + ["run_info.json"]) for depth in range(_DEEPEST)
    ]
    return [path.parent for pattern in patterns for path in root.glob(pattern)]


def _describe(workdir: pathlib.Path, root: pathlib.Path) -> dict[str, Any]:
    info = _read_json(workdir / "run_info.json")
    starts = info.get("starts") or [{}]
    started = starts[-1].get("time")
    steps = [
        int(path.name.removeprefix("ckpt_"))
        for path in workdir.glob("checkpoints/ckpt_*")
        if path.name.removeprefix("ckpt_").isdigit()
    ]
    values, logged_step = _last_values(workdir)
    done = _read_json(workdir / "train_complete.txt").get("step")
    known = [*steps, *(step for step in (logged_step, done) if step is not None)]
    return {
        "workdir": str(workdir.relative_to(root)),
        "state": _state(workdir),
        "step": max(known, default=None),
        "last_start": started
        and time.strftime("%Y-%m-%d %H:%M", time.localtime(started)),
        "tags": info.get("tags", []),
        "values": values,
    }


def _state(workdir: pathlib.Path) -> str:
    if (workdir / "train_complete.txt").exists():
        return "complete"
    return "stopped" if holder(workdir / "train.lock") is None else "running"


def _last_values(workdir: pathlib.Path) -> tuple[dict[str, str], int | None]:
    """Return the newest losses and metrics of each collection, and the newest step."""
    values: dict[str, str] = {}
    newest: int | None = None
    for path in sorted(workdir.glob("*/scalars.jsonl")):
        line = _last_line(path)
        if line is None:
            continue
        newest = max(newest or 0, line["step"])
        for name, value in line["values"].items():
            if name.startswith("metrics/") or name == "losses/total":
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                values[f"{path.parent.name}/{name.split('/', 1)[1]}"] = shown
    return values, newest


def _last_line(path: pathlib.Path) -> dict[str, Any] | None:
    """Return the last whole line of a log without reading all of the file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LONGEST_LINE))
        lines = file.read().split(b"\n")[:-1]
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:  # damaged, or cut by a full disk
        return None


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
