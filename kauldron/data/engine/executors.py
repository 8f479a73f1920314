"""Building units in the background: threads here, processes in `workers`."""

from __future__ import annotations

import abc
import collections
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

Build = Callable[[int], Any]


class Executor(abc.ABC):
    """Builds the units before `stop` ahead and gives them one after another."""

    def __init__(self, stop: int | None):
        self._next = 0
        self._stop = stop

    @abc.abstractmethod
    def get(self) -> Any:
        """Wait for the next unit.

        Raises:
          StopIteration: There is none.
          Exception: What building it raised; the executor is then closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Let everything in the background end. May be called again."""

    def _has(self, unit: int) -> bool:
        return self._stop is None or unit < self._stop


class ThreadExecutor(Executor):
    """Background threads build up to `ahead` units before they are asked for.

    The threads know the queue of tasks but not this object, so they end when it is
    closed or forgotten.
    """

    def __init__(
        self, build: Build, stop: int | None, *, ahead: int, num_threads: int = 1
    ):
        super().__init__(stop)
        self._ahead = ahead
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._pending: collections.deque[queue.SimpleQueue] = collections.deque()
        self._threads = [
            threading.Thread(
                target=_serve, args=(build, self._tasks), name="kd.data", daemon=True
            )
            for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()
        self._end = weakref.finalize(self, _end, self._tasks, num_threads)
        self._end.atexit = False  # daemon threads end with the interpreter
        self._fill()

    def get(self) -> Any:
        self._fill(1)
        if not self._pending:
            raise StopIteration
        # Taken off only once it is there: an interrupt while waiting loses nothing.
        piece, error = self._pending[0].get()
        self._pending.popleft()
        if error is not None:
            self.close()
            raise error
        return piece

    def close(self) -> None:
        self._end()
        self._pending.clear()
        self._stop = self._next
        for thread in self._threads:
            thread.join()

    def _fill(self, more: int = 0) -> None:
        while len(self._pending) < self._ahead + more and self._has(self._next):
            slot: queue.SimpleQueue = queue.SimpleQueue()
            self._pending.append(slot)
            self._tasks.put((self._next, slot))
            self._next += 1


def _serve(build: Build, tasks: queue.SimpleQueue) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        unit, slot = task
        try:
            slot.put((build(unit), None))
        except BaseException as error:
            slot.put((None, error))
        del task, unit, slot


def _end(tasks: queue.SimpleQueue, num_threads: int) -> None:
    while True:  # what nobody waits for any more need not be built
        try:
            tasks.get_nowait()
        except queue.Empty:
            break
    for _ in range(num_threads):
        tasks.put(None)
