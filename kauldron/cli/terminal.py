"""What the command prints: errors, tables, colours in a terminal, plain text in a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from kauldron.errors import message_with_notes


class UsageError(Exception):
    """Bad input, shown as one message without a traceback; the exit code is 2.

    `--traceback` shows the cause, if there is one.
    """


def tell(error: BaseException, *, show_traceback: bool) -> None:
    """Print an error to stderr."""
    if show_traceback:
        traceback.print_exception(error)
    text = message_with_notes(error)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        print(f"\033[1;31merror:\033[0m {text}", file=sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Print warnings without folders and source code, as the panel of a run does."""
    is_terminal = sys.stderr.isatty()
    is_colored = is_terminal and "NO_COLOR" not in os.environ
    label = "\033[30;43m warning \033[0m" if is_colored else "warning:"

    def shown(message, category, filename, lineno, line=None) -> str:
        place = f"{os.path.basename(filename)}:{lineno}"
        text = f"{message} ({category.__name__}, {place})"
        if is_terminal:
            width = shutil.get_terminal_size().columns
            indent = " " * len(" warning  ")
            text = textwrap.fill(text, width, initial_indent=indent).lstrip()
        return f"{label} {text}\n"

    before, warnings.formatwarning = warnings.formatwarning, shown
    try:
        yield
    finally:
        warnings.formatwarning = before


def print_python(text: str) -> None:
    """Print text that reads like Python, such as a config."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    syntax = Syntax(
        text, "python", theme="ansi_dark", background_color="default", word_wrap=True
    )
    Console().print(syntax)


def print_lines(lines: Sequence[str], styles: dict[str, str]) -> None:
    """Print lines; in a terminal, their first character gives their rich style."""
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in lines:
        console.print(Text(line, style=styles.get(line[:1], "")))


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Print rows: a table in a terminal, tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(cell.replace("\t", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")  # a path that is cut is of no use
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def print_json(data: Any) -> None:
    """Print data for a script."""
    print(json.dumps(data, indent=2, default=str))


def write_page(file: str, html: str, *, title: str) -> None:
    """Write a page for a browser to the file that `--html` names."""
    from kauldron.inspect.views import View

    try:
        View(html=html, text="", title=title).save(file)
    except OSError as error:
        raise UsageError(f"--html={file}: {error}") from error
    print(f"Wrote {file}")


def existing_folder(text: str) -> str:
    """Return the folder that an argument names; for `type=` of an argument."""
    if not os.path.isdir(text or "."):
        raise UsageError(f"There is no folder {text}.")
    return text
