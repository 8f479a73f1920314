"""`kauldron runs`."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from typing import TYPE_CHECKING

from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.terminal import UsageError, existing_folder, print_json

if TYPE_CHECKING:
    from kauldron.inspect.run_table import Column, RunTable

_STATE_STYLES = {"running": "green", "failed": "bold red", "stopped": "yellow"}
_GAP = 2


class Runs(Implementation):
    """List runs: state, step, speed, what differs in their configs, metrics."""

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "folder",
            nargs="?",
            default=".",
            type=existing_folder,
            help="where to look for workdirs (default: .)",
        )
        parser.add_argument(
            "--metrics",
            help="metrics to show, names or patterns: 'test/*,train/loss' (default: "
            "total losses and metrics, but not those of each class)",
        )
        parser.add_argument(
            "--fields",
            help="fields of the configs to show (default: those that differ; of fields"
            " that always have the same value as each other, only one)",
        )
        parser.add_argument("--where", help="runs to show: 'lr > 1e-3 and seed == 0'")
        parser.add_argument(
            "--sort",
            help="column to sort by, the best first; with '-' in front the worst first",
        )
        parser.add_argument(
            "--group",
            help="fields to average over, such as seed: mean ± standard deviation",
        )
        formats = parser.add_mutually_exclusive_group()
        formats.add_argument("--json", action="store_true", help="print a JSON list")
        formats.add_argument("--csv", action="store_true", help="print CSV")
        formats.add_argument("--latex", action="store_true", help="print a LaTeX table")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        from kauldron.inspect import (  # numpy takes a while
            run_folder,
            run_formats,
            run_table,
        )

        found = run_folder.find_runs(args.folder)
        try:
            table = run_table.read_table(
                found,
                metrics=args.metrics,
                fields=args.fields,
                where=args.where,
                sort=args.sort,
                group=args.group,
            )
        except (LookupError, ValueError) as error:
            raise UsageError(str(error)) from error
        if args.json:
            print_json(run_formats.as_records(table))
        elif args.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerows([table.names, *table.rows])
        elif args.latex:
            print(run_formats.as_latex(table))
        elif not found:
            print(f"No runs below {args.folder}.")
        elif not table.rows:
            print(f"None of the {len(found)} runs is one where {args.where}.")
        else:
            _print_table(table)
        return OK


def _print_table(table: RunTable) -> None:
    from kauldron.inspect.run_formats import best_cells, text_cells

    columns, rows = text_cells(table)
    aligned = {
        column: _aligned(column, [column.name, *texts])
        for column, texts in zip(columns, zip(*rows))
    }
    is_terminal = sys.stdout.isatty()
    shown, hidden = columns, []
    if is_terminal:
        widths = {column: len(texts[0]) for column, texts in aligned.items()}
        shown, hidden = _fitting(columns, widths, shutil.get_terminal_size().columns)
    lines = zip(*(aligned[column] for column in shown))
    if not is_terminal:
        print("\n".join((" " * _GAP).join(line).rstrip() for line in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    marked = best_cells(table)
    for number, line in enumerate(lines):
        text = Text(no_wrap=True, overflow="crop")
        for cell, column in zip(line, shown):
            style = "bold" if number == 0 else _STATE_STYLES.get(cell.strip(), "")
            if (number - 1, column.name) in marked:
                style = "bold green"
            text.append(cell, style).append(" " * _GAP)
        text.rstrip()
        console.print(text, no_wrap=True, crop=True, soft_wrap=False)
    if hidden:
        note = f"Not shown: {', '.join(hidden)}. Choose with --metrics, --fields."
        console.print(note, style="dim")


def _aligned(column: Column, texts: list[str]) -> list[str]:
    """Return the texts of a column, its name first, in one width: numbers to the right."""
    is_numeric = column.name != "run" and all(
        text[:1].isdigit() or text[:1] == "-" or text in ("nan", "inf")
        for text in texts[1:]
    )
    width = max(map(len, texts))
    return [text.rjust(width) if is_numeric else text.ljust(width) for text in texts]


def _fitting(
    columns: list[Column], widths: dict[Column, int], width: int
) -> tuple[list[Column], list[str]]:
    """Return the columns that fit into a terminal, and the names of the others.

    Fields and metrics are dropped in turn, so some of both are left; values of training
    go before those of evaluations.
    """
    shown, hidden = list(columns), []

    def of(kind: str) -> list[Column]:
        return [column for column in shown if column.kind == kind]

    while sum(widths[c] + _GAP for c in shown) - _GAP > width:
        fields, metrics = of("field"), of("metric")
        dull = [
            *(column for column in shown if column.name == "speed"),
            *(column for column in metrics if column.path.startswith("train/")),
            *(column for column in metrics if column.name.endswith("/loss:best")),
        ]
        longer = fields if len(fields) > len(metrics) else metrics
        if not dull and not longer:
            break
        dropped = dull[0] if dull and longer is not fields else longer[-1]
        shown.remove(dropped)
        hidden.append(dropped.name)
    return shown, [column.name for column in columns if column.name in hidden]
