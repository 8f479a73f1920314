"""What to do with an exception that nobody caught."""

from __future__ import annotations

import contextlib
import functools
import pdb
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from kauldron.errors import error_prefix as error_prefix

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

_FLAG = "catch_post_mortem"


def define_flag() -> None:
    """Define the command-line flag `--catch_post_mortem`; again is harmless."""
    from absl import flags

    if _FLAG not in flags.FLAGS:
        flags.DEFINE_bool(
            _FLAG, False, "Open the Python debugger where the run failed."
        )


def catch_post_mortem(fn: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """With `--catch_post_mortem`, open the debugger at the frame that failed.

    The exception is raised again afterwards, so that the process ends with an error.
    Without a terminal there is no debugger, only the exception. `KeyboardInterrupt` and
    `SystemExit` pass untouched.

    Args:
      fn: Typically the `main` of a program.

    Returns:
      The function, with the same signature and name.
    """
    define_flag()

    @functools.wraps(fn)
    def wrapper(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with post_mortem(is_on=_is_flag_on()):
            return fn(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def post_mortem(*, is_on: bool) -> Iterator[None]:
    """Open the debugger on what is raised inside, then raise it.

    Without a terminal, where nobody could answer, it is only raised.
    """
    try:
        yield
    except Exception as error:
        if is_on and sys.stdin.isatty() and sys.stdout.isatty():
            traceback.print_exception(error)
            pdb.post_mortem(error.__traceback__)
        raise


def _is_flag_on() -> bool:
    from absl import flags

    return flags.FLAGS.is_parsed() and flags.FLAGS[_FLAG].value
