"""A table of runs as text, LaTeX and records for scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from kauldron.inspect.run_table import Column, RunTable, smaller_is_better


def format_cell(value: Any) -> str:
    """Return a value as a person reads it.

    Example:
      >>> format_cell(0.123456), format_cell(1e-05), format_cell(None), format_cell(600)
      ('0.1235', '1e-05', '-', '600')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def text_cells(table: RunTable) -> tuple[list[Column], list[list[str]]]:
    """Return columns and texts of the cells: a mean and its deviation are one cell."""
    columns = [c for c in table.columns if c.kind != "deviation"]
    rows = []
    for row in table.rows:
        cells: list[str] = []
        for column, value in zip(table.columns, row, strict=True):
            if column.kind == "deviation":
                cells[-1] += "" if value is None else f" ± {value:.2g}"
            else:
                cells.append(format_cell(value))
        rows.append(cells)
    return columns, rows


def best_cells(table: RunTable) -> set[tuple[int, str]]:
    """Return row and column name of the best value of each metric."""
    marked = set()
    for index, column in enumerate(table.columns):
        if column.kind != "metric":
            continue
        values = {
            i: row[index]
            for i, row in enumerate(table.rows)
            if isinstance(row[index], int | float) and math.isfinite(row[index])
        }
        if len(set(values.values())) > 1:
            choose: Callable[..., Any] = min if smaller_is_better(column.path) else max
            best = choose(values.values())
            marked |= {(i, column.name) for i, v in values.items() if v == best}
    return marked


def as_latex(table: RunTable) -> str:
    """Return a `tabular` for a paper that loads `booktabs`; the best values are bold."""
    columns, rows = text_cells(table)
    marked = best_cells(table)
    numeric = {
        c.name: all(isinstance(v, int | float) or v is None for v in values)
        for c, values in zip(table.columns, zip(*table.rows))
    }
    align = "".join("r" if numeric.get(c.name) else "l" for c in columns)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(_latex_text(c.name) for c in columns) + r" \\", r"\midrule"]
    for index, row in enumerate(rows):
        cells = []
        for column, text in zip(columns, row, strict=True):
            cell = _latex_number(text) if numeric[column.name] else _latex_text(text)
            is_best = (index, column.name) in marked
            cells.append(rf"\textbf{{{cell}}}" if is_best else cell)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _latex_number(text: str) -> str:
    text = re.sub(r"(\S+)e([-+]?)0*(\d+)", r"$\1 \\times 10^{\2\3}$", text)
    text = text.replace("{+", "{").replace("$1 \\times ", "$")
    text = re.sub(r"^-(?=[\d.]|inf)", "$-$", text)
    return "--" if text == "-" else text.replace("±", r"$\pm$")


_LATEX = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)


def as_records(table: RunTable) -> list[dict[str, Any]]:
    """Return the rows as data for a script: numbers are numbers, missing is `None`."""
    records = []
    for row, members in zip(table.rows, table.runs, strict=True):
        cells = dict(zip(table.columns, map(_jsonable, row)))
        record: dict[str, Any] = {}
        if len(members) == 1 and "run" in table.names:
            run = members[0]
            record["workdir"] = run.name
            record |= {name: _jsonable(value) for name, value in run.summary().items()}
        else:
            record["workdirs"] = [run.name for run in members]
        record["fields"] = _of_kind(cells, "field")
        record["values"] = _of_kind(cells, "metric", "deviation")
        records.append(record)
    return records


def _of_kind(cells: Mapping[Column, Any], *kinds: str) -> dict[str, Any]:
    return {c.name: value for c, value in cells.items() if c.kind in kinds}


def _jsonable(value: Any) -> Any:
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_odd else value
