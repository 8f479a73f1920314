"""Errors that are the user's to fix, and how they are told."""

from __future__ import annotations

import linecache
import os
import sys
import traceback


class UsageError(Exception):
    """Bad input: told in one message without a traceback; the exit code is 2.

    The cause, if there is one, is what `--traceback` shows.
    """


def describe(error: BaseException, user_file: str | None = None) -> str:
    """The message of an error for the person at the command line.

    Args:
      error: What was raised.
      user_file: A file of the user. If the error came from a line in it, the message
        ends with that line.
    """
    if isinstance(error, SyntaxError) and error.filename:
        lines = traceback.format_exception_only(SyntaxError, error)
        place = f"{_short(error.filename)}:{error.lineno}"
        return f"{place}: {error.msg}\n{''.join(lines[1:-1]).rstrip()}"
    message = str(error) or type(error).__name__
    place = _place_in(error, user_file) if user_file else None
    return f"{message}\n{place}" if place else message


def _place_in(error: BaseException, user_file: str) -> str | None:
    """The innermost line of a file that an error passed through."""
    path = os.path.abspath(user_file)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if os.path.abspath(frame.filename) == path]
    if not lines:
        return None
    line = lines[-1]
    source = linecache.getline(line.filename, line.lineno or 0).strip()
    name = type(error).__name__
    place = f"{_short(line.filename)}:{line.lineno}, in {line.name}"
    return f"  {name} raised at {place}\n    {source}"


def _short(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def tell(error: BaseException, *, show_traceback: bool) -> None:
    """Prints an error to stderr."""
    if show_traceback:
        traceback.print_exception(error)
    text = str(error)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        print(f"\033[1;31merror:\033[0m {text}", file=sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)
