"""However a run ends, what it wrote is on disk when `train` is left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kauldron.train.trainer import Trainer

_LONGEST_WAIT_AFTER_ERROR_SECS = 60.0


def close_at_the_end(stack: contextlib.ExitStack, trainer: Trainer) -> None:
    """Have the checkpointer and all writers closed when the stack is left."""
    stack.push(_closer("the checkpointer", trainer.checkpointer.close))
    stack.push(_closer("the writer", trainer.writer.close))
    for name, evaluator in trainer.evals.items():
        stack.push(_closer(f"the writer of {name}", evaluator.writer.close))


def _closer(what: str, close: Callable[[], None]) -> Callable[..., None]:
    """For an `ExitStack`: an error that is under way is neither replaced nor held up."""

    def exit_(kind: Any, error: BaseException | None, traceback: Any) -> None:
        del kind, traceback
        if error is None:
            close()
            return
        problem = _close_in_time(close)
        if problem:
            error.add_note(f"Closing {what} failed as well: {problem}")

    return exit_


def _close_in_time(close: Callable[[], None]) -> str | None:
    """Close, but wait for it only so long; what went wrong."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            close()
        except Exception as error:
            errors.append(error)

    # A daemon: what hangs must not keep the process alive either.
    thread = threading.Thread(target=run, name="kauldron-close", daemon=True)
    thread.start()
    thread.join(_LONGEST_WAIT_AFTER_ERROR_SECS)
    if thread.is_alive():
        return f"it takes more than {_LONGEST_WAIT_AFTER_ERROR_SECS:.0f} s"
    return repr(errors[0]) if errors else None
