"""The debugger, where an error was raised."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator


@contextlib.contextmanager
def post_mortem(*, is_on: bool) -> Iterator[None]:
    """Open the debugger on what is raised inside, then raise it."""
    try:
        yield
    except Exception as error:
        if is_on:
            import pdb

            traceback.print_exception(error)
            pdb.post_mortem(error.__traceback__)
        raise
