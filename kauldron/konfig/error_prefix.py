"""Says where an error happened without changing what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kauldron.konfig.errors import raise_reworded


@contextlib.contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Puts `prefix` in front of the message of what is raised inside.

    Type, attributes and traceback of the exception stay.

    Example:
      >>> with error_prefix("--cfg.n=x: "):
      ...     raise TypeError("not a number")
      Traceback (most recent call last):
      TypeError: --cfg.n=x: not a number
    """
    try:
        yield
    except Exception as error:
        raise_reworded(error, f"{prefix}{error}")
