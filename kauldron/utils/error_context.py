"""Say where an error happened without changing what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def error_prefix(prefix: str | Callable[[], str]) -> Iterator[None]:
    """Put `prefix` in front of the message of what is raised inside.

    Type, traceback and attributes of the exception stay. An exception whose text does
    not come from its arguments gets the prefix as a note instead.

    Args:
      prefix: The text, or a function giving it (called only on error).

    Example:
      >>> with error_prefix("In metric 'acc': "):
      ...     raise ValueError("wrong shape")
      Traceback (most recent call last):
      ValueError: In metric 'acc': wrong shape
    """
    try:
        yield
    except Exception as error:
        _add_prefix(error, prefix if isinstance(prefix, str) else prefix())
        raise


def message_with_notes(error: BaseException) -> str:
    """The message of an error and all that was added to it on the way."""
    message = str(error) or type(error).__name__
    if isinstance(error, KeyError) and len(error.args) == 1:
        text = str(error.args[0])  # a sentence is not quoted, a key is no sentence
        message = text if " " in text else f"KeyError: {message}"
    notes = [
        note
        for note in getattr(error, "__notes__", ())
        if "JAX_TRACEBACK_FILTERING" not in note  # no traceback is shown
    ]
    return "\n".join([message, *notes])


class _Verbatim(str):
    """`str(KeyError(text))` is `repr(text)`: this one keeps its line breaks."""

    __repr__ = str.__str__  # type: ignore[assignment]


def _add_prefix(error: Exception, prefix: str) -> None:
    if isinstance(error, OSError) and error.strerror:
        error.strerror = f"{prefix}{error.strerror}"
        return
    if isinstance(error, ImportError) and error.msg:
        error.msg = f"{prefix}{error.msg}"
        return
    old_args = error.args
    message = str(old_args[0]) if old_args else ""
    kind = _Verbatim if isinstance(error, KeyError) else str
    try:
        error.args = (kind(prefix + message), *old_args[1:])
        is_shown = prefix in str(error)
    except Exception:  # an exception class with a mind of its own
        is_shown = False
    if not is_shown:
        error.args = old_args
        error.add_note(prefix.rstrip())
