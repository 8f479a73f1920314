"""File writing off the training thread, in order, with errors that are not lost."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class BackgroundQueue:
    """Runs calls one after the other in a thread.

    The queue is bounded: a producer that is too fast waits. What a call raises is
    raised by the next `submit`, `flush` or `close`; calls after it are dropped.
    """

    def __init__(self, name: str, *, size: int = 64):
        self._queue: queue.Queue[tuple[Callable[..., Any], tuple[Any, ...]] | None]
        self._queue = queue.Queue(size)
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args)` later. The arguments must not be changed meanwhile."""
        self._raise_error()
        self._queue.put((function, args))

    def wait(self) -> None:
        """Wait until everything that was submitted is done."""
        self._queue.join()
        self._raise_error()

    def close(self) -> None:
        """Finish what was submitted and end the thread; further calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
            self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self) -> None:
        has_failed = False
        while (item := self._queue.get()) is not None:
            try:
                if not has_failed:
                    item[0](*item[1])
            except BaseException as error:
                self._error = error
                has_failed = True
            finally:
                self._queue.task_done()
        self._queue.task_done()
