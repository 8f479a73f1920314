"""What a program writes to a terminal, for tests that give it one."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Callable
from typing import Any

from tests import processes


def read_all(descriptor: int) -> str:
    """Everything that is written to the other side of a terminal, until it closes."""
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how Linux tells that the other side is closed
            piece = b""
        if not piece:
            os.close(descriptor)
            return b"".join(pieces).decode()
        pieces.append(piece)


def run_in_terminal(
    *words: Any,
    columns: int = 80,
    rows: int = 50,
    environment: dict[str, str] | None = None,
    on_start: Callable[[processes.Process], None] = lambda process: None,
    stdout: str | None = None,
) -> tuple[int, str]:
    """Run `python words...` in a terminal; return its exit code and what it wrote."""
    controller, terminal = pty.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    absent = dict.fromkeys(("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"))
    process = processes.python(
        *words,
        environment={**absent, "TERM": "xterm-256color", **(environment or {})},
        terminal=os.ttyname(terminal),
        stdout=stdout,
    )
    pieces: list[str] = []
    reader = threading.Thread(target=lambda: pieces.append(read_all(controller)))
    reader.start()
    try:
        on_start(process)
        code, _ = process.wait()
    finally:
        process.stop()
        os.close(terminal)  # the reader ends when nobody has the terminal open
        reader.join()
    return code, "".join(pieces)


def screen(output: str, *, columns: int = 80) -> list[str]:
    """Return the lines that a terminal shows at the end, those scrolled away included.

    A line that is longer than the terminal is wide goes on in the next one.
    """
    lines: list[list[str]] = [[]]
    row = column = 0
    for token in re.findall(
        r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|.", output, re.S
    ):
        if token == "\n":
            row += 1
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b["):
            count = int(token[2:-1]) if token[2:-1].isdecimal() else 1
            if token.endswith("A"):
                row -= count
            elif token.endswith("K"):
                lines[row] = [] if token == "\x1b[2K" else lines[row][:column]
        elif token >= " ":
            if column == columns:
                row, column = row + 1, 0
            while len(lines) <= row:
                lines.append([])
            line = lines[row]
            line.extend(" " * (column + 1 - len(line)))
            line[column] = token
            column += 1
        while len(lines) <= row:
            lines.append([])
    shown = "\n".join("".join(line).rstrip() for line in lines)
    return shown.rstrip().split("\n")
