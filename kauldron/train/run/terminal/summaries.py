"""Texts of summaries in a terminal: tables, confusion matrices, beginnings of texts."""

from __future__ import annotations

import re

from rich.text import Text

_MOST_TEXT_LINES = 4
_MOST_CONFUSIONS = 5
_OFTEN = 0.05  # share of a class that is taken for another one

_NAME = "cyan"
_RIGHT = "bold green"
_WRONG = "red"


def titled_summary(
    text: str, *, collection: str, name: str, step: int, width: int
) -> list[Text]:
    """Return the text of a summary below an empty line and its name."""
    title = f"{collection} · {name.removeprefix('summaries/')}, step {step}"
    lines = summary_lines(text, width=width)
    return [Text(), Text(title, style="bold", no_wrap=True), *lines]


def summary_lines(text: str, *, width: int) -> list[Text]:
    """Return a summary as lines: a table, as in Markdown, or the beginning of a text."""
    lines = text.strip().splitlines()
    if len(lines) > 2 and re.fullmatch(r"[\s|:-]+", lines[1]):
        rows = [_cells(line) for line in (lines[0], *lines[2:])]
        return _table(rows, width)
    shown = [Text(line, no_wrap=True) for line in lines[:_MOST_TEXT_LINES]]
    hidden = len(lines) - len(shown)
    more = [Text(f"... {hidden} more lines", style="dim")] if hidden else []
    return shown + more


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _table(rows: list[list[str]], width: int) -> list[Text]:
    numbers = _confusions(rows)
    widths = _widths(rows, width)
    if widths is None and numbers is not None:
        return _most_confused(rows, numbers)
    if widths is None:
        size = f"{len(rows) - 1} rows, {len(rows[0]) - 1} columns"
        return [Text(f"{size}: too wide for this terminal", style="dim")]
    lines = [_line(rows[0], widths, [_NAME] * len(widths))]
    for index, row in enumerate(rows[1:]):
        styles = [_NAME, *([""] * (len(widths) - 1))]
        if numbers is not None:
            row = [
                row[0],
                *("·" if n == 0 else c for n, c in zip(numbers[index], row[1:])),
            ]
            styles = [_NAME, *_styles(numbers[index], index)]
        lines.append(_line(row, widths, styles))
    return lines


def _widths(rows: list[list[str]], width: int) -> list[int] | None:
    """Return the widths of the columns; names above them are cut where they must be."""
    columns = list(zip(*rows, strict=False))
    needed = [max(map(len, columns[0]))]
    needed += [max(map(len, column[1:])) for column in columns[1:]]
    spare = width - sum(needed) - 2 * (len(columns) - 1)
    if spare < 0:
        return None
    longest = max(len(name) for name in rows[0][1:])
    while longest and _extra(columns, needed, longest) > spare:
        longest -= 1
    return [
        needed[0],
        *(
            max(wide, min(len(column[0]), longest))
            for column, wide in zip(columns[1:], needed[1:])
        ),
    ]


def _extra(columns: list[tuple[str, ...]], needed: list[int], longest: int) -> int:
    """Return how many characters names of at most `longest` take beyond the cells."""
    return sum(
        max(0, min(len(column[0]), longest) - wide)
        for column, wide in zip(columns[1:], needed[1:])
    )


def _line(cells: list[str], widths: list[int], styles: list[str]) -> Text:
    line = Text(no_wrap=True)
    for number, (cell, width, style) in enumerate(zip(cells, widths, styles)):
        line.append("  " if number else "")
        line.append(_cut(cell, width).rjust(width), style=style)
    return line


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return text[:width] if width < 4 else text[: width - 1] + "…"


#
# True and predicted classes
#


def _confusions(rows: list[list[str]]) -> list[list[float]] | None:
    """Return the numbers of a confusion matrix; `None` for any other table."""
    if not re.match(r"true\b.*\bpred", rows[0][0]):
        return None
    try:
        numbers = [[float(cell) for cell in row[1:]] for row in rows[1:]]
    except ValueError:
        return None
    is_square = all(len(row) == len(numbers) for row in numbers)
    return numbers if is_square else None


def _styles(row: list[float], index: int) -> list[str]:
    total = sum(row) or 1
    return [
        _RIGHT if i == index else _WRONG if n / total >= _OFTEN else "" if n else "dim"
        for i, n in enumerate(row)
    ]


def _most_confused(rows: list[list[str]], numbers: list[list[float]]) -> list[Text]:
    """Return the largest entries off the diagonal, if there is no room for all."""
    wrong = [
        (-number, i, j)
        for i, row in enumerate(numbers)
        for j, number in enumerate(row)
        if i != j and number > 0
    ]
    head = f"{len(numbers)} classes, of which those most often taken for another:"
    lines = [
        Text(head if wrong else f"{len(numbers)} classes, none taken for another.")
    ]
    for _, i, j in sorted(wrong)[:_MOST_CONFUSIONS]:
        names = (rows[i + 1][0], _NAME), " taken for ", (rows[0][j + 1], _NAME)
        count = rows[i + 1][j + 1]
        lines.append(Text.assemble("  ", *names, "  ", (count, _WRONG), no_wrap=True))
    return lines
