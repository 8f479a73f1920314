"""What went wrong in a config, for the person at the command line."""

from __future__ import annotations

import linecache
import os
import traceback

from kauldron.konfig.file_names import short_file


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


def message_with_notes(error: BaseException) -> str:
    """The message and all that was added to it on the way."""
    message = str(error) or type(error).__name__
    notes = [
        note
        for note in getattr(error, "__notes__", ())
        if "JAX_TRACEBACK_FILTERING" not in note  # no traceback is shown
    ]
    return "\n".join([message, *notes])


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
    place = f"{short_file(line.filename)}:{line.lineno}, in {line.name}"
    return f"  {name} raised at {place}\n    {source}"
