"""Errors that are the user's to fix, and how they are told."""

from __future__ import annotations

import os
import sys
import traceback


class UsageError(Exception):
    """Bad input: told in one message without a traceback; the exit code is 2.

    The cause, if there is one, is what `--traceback` shows.
    """


def tell(error: BaseException, *, show_traceback: bool) -> None:
    """Prints an error to stderr."""
    if show_traceback:
        traceback.print_exception(error)
    text = str(error)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        print(f"\033[1;31merror:\033[0m {text}", file=sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)
