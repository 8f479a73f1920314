"""Requests to stop, by signal: the run saves first, then leaves."""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import jax
from jax.experimental import multihost_utils

from kauldron import status


class Preempted(SystemExit):
    """Training saved its state and stopped because it was asked to.

    Uncaught, it ends the process quietly.

    Attributes:
      step: The step that was saved.
    """

    def __init__(self, step: int, code: int = 143):
        super().__init__(code)
        self.step = step

    def __str__(self) -> str:
        return f"preempted at step {self.step}"


# The signals that ask to stop, and the exit status that their sender expects.
_EXIT_CODES = {signal.SIGTERM: 143, signal.SIGUSR1: 0, signal.SIGINT: 130}
_DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)


class StopRequest:
    """A request to stop, made by a signal; cheap to look at in every step."""

    def __init__(self, reaction: str = "stopping") -> None:
        self.exit_code: int | None = None
        self._reaction = reaction

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        name = signal.Signals(signum)
        if self.exit_code is None:  # further ones are ignored while saving
            self.exit_code = _EXIT_CODES[name]
            status.log(f"Received {name.name}: {self._reaction}.")
        if name == signal.SIGINT:
            status.log("Press Ctrl-C again to stop at once.")
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def leave(self, step: int) -> NoReturn:
        """Stop the job, after saving."""
        if self.exit_code == _EXIT_CODES[signal.SIGINT]:
            raise KeyboardInterrupt(f"Stopped at step {step}, as asked.")
        code = _EXIT_CODES[signal.SIGTERM] if self.exit_code is None else self.exit_code
        raise Preempted(step, code)

    def is_set(self, step: int) -> bool:
        """Return whether to stop before `step`; all processes of a run agree."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.exit_code is not None


class StopRequested(Exception):
    """Raised by long work that noticed the request between two of its parts."""


_watched: contextvars.ContextVar[StopRequest | None] = contextvars.ContextVar(
    "stop_request", default=None
)


@contextlib.contextmanager
def watched(request: StopRequest) -> Iterator[None]:
    """Inside, `raise_if_stop_requested` looks at this request."""
    token = _watched.set(request)
    try:
        yield
    finally:
        _watched.reset(token)


def raise_if_stop_requested() -> None:
    """Raise `StopRequested` if so; long work, such as an evaluation, calls it often."""
    if is_stop_requested():
        raise StopRequested


def is_stop_requested() -> bool:
    """Return whether the job that is watched was asked to stop."""
    request = _watched.get()
    return request is not None and request.exit_code is not None


@contextlib.contextmanager
def stop_on_signals(reaction: str = "stopping") -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGUSR1 and Ctrl-C into a request, inside the block.

    Handlers that the application set stay, and threads other than the main one cannot
    set any. With several processes JAX's own preemption notice is used. A job inside a
    job that is watched shares its request. The log says the `reaction`.
    """
    outer = _watched.get()
    if outer is not None:
        yield outer
        return
    request = StopRequest(reaction)
    previous = {}
    can_install = threading.current_thread() is threading.main_thread()
    if can_install and jax.process_count() == 1:
        for signum in _EXIT_CODES:
            if signal.getsignal(signum) in _DEFAULT_HANDLERS:
                previous[signum] = signal.signal(signum, request._on_signal)
    try:
        yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
