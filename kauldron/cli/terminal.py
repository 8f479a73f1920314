"""Output: colours in a terminal, plain text in a pipe."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Sequence
from typing import Any


def print_python(text: str) -> None:
    """Prints text that reads like Python, such as a config."""
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
    """Prints lines, coloured by their first character in a terminal.

    Args:
      lines: The lines.
      styles: From first character to the name of a rich style.
    """
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in lines:
        console.print(Text(line, style=styles.get(line[:1], "")))


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Prints rows: a table in a terminal, tab-separated lines in a pipe."""
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
    """Prints data for a script."""
    print(json.dumps(data, indent=2, default=str))


def reader_is_gone() -> bool:
    """Whether whoever read stdout, such as `head`, has seen enough and left.

    If so, what is still to be written goes nowhere.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
