"""What went wrong in a config, for the person at the command line."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback

import kauldron
from kauldron.konfig.file_names import short_file
from kauldron.utils.error_context import message_with_notes


def describe(error: BaseException, user_file: str | None = None) -> str:
    """The message of an error for the person at the command line.

    Args:
      error: What was raised.
      user_file: A file of the user. If the error came from a line in it, the message
        ends with that line.
    """
    if isinstance(error, SyntaxError) and error.filename:
        lines = traceback.format_exception_only(SyntaxError, error)
        place = f"{short_file(error.filename)}:{error.lineno}"
        return f"{place}: {error.msg}\n{''.join(lines[1:-1]).rstrip()}"
    message = message_with_notes(error)
    place = _place_in(error, user_file) if user_file else None
    return f"{message}\n{place}" if place else message


def users_line(error: BaseException) -> str:
    """The innermost line of the user's own code that an error passed through.

    Returns:
      Lines to add to the message; empty if only libraries were involved.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not _is_of_library(frame.filename)]
    return f"\n{_describe_frame(error, lines[-1])}" if lines else ""


def _is_of_library(file: str) -> bool:
    path = os.path.abspath(file)
    return file.startswith("<") or path.startswith(_LIBRARIES)


_LIBRARIES = (
    os.path.dirname(os.path.abspath(kauldron.__file__)) + os.sep,
    *(
        os.path.abspath(sysconfig.get_path(name)) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


def _place_in(error: BaseException, user_file: str) -> str | None:
    """The innermost line of a file that an error passed through."""
    path = os.path.abspath(user_file)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if os.path.abspath(frame.filename) == path]
    return _describe_frame(error, lines[-1]) if lines else None


def _describe_frame(error: BaseException, line: traceback.FrameSummary) -> str:
    source = linecache.getline(line.filename, line.lineno or 0).strip()
    name = type(error).__name__
    place = f"{short_file(line.filename)}:{line.lineno}, in {line.name}"
    return f"  {name} raised at {place}\n    {source}"
