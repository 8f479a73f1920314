"""Says where an error happened without changing what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kauldron.konfig.errors import key_error


@contextlib.contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Puts `prefix` in front of the message of what is raised inside.

    Type, attributes and traceback of the exception stay. One whose text does not come
    from its arguments gets the prefix as a note.

    Example:
      >>> with error_prefix("--cfg.n=x: "):
      ...     raise TypeError("not a number")
      Traceback (most recent call last):
      TypeError: --cfg.n=x: not a number
    """
    try:
        yield
    except Exception as error:
        add_prefix(error, prefix)
        raise


def add_prefix(error: BaseException, prefix: str) -> None:
    """Puts `prefix` in front of the message of one exception."""
    args = error.args
    text = str(error)
    try:
        # The text of a KeyError is the repr of its argument: keep the words readable.
        message = key_error(prefix + text).args[0]
        error.args = (message, *args[1:]) if len(args) == 1 else args
        shown = str(error).startswith(prefix)
    except Exception:  # a class with a mind of its own
        shown = False
    if not shown:
        error.args = args
        error.add_note(prefix.rstrip(" :"))
