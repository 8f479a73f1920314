"""Who builds the units: the caller itself, or threads in the background."""

from __future__ import annotations

import abc
import collections
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

Build = Callable[[int], Any]


class Executor(abc.ABC):
    """Gives the units one after another, from `start` on.

    Args:
      start: The first unit.
      stop: The unit after the last one, `None` for endless data.
    """

    def __init__(self, start: int, stop: int | None):
        self._next = start
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

    @property
    def builds_ahead(self) -> bool:
        """Whether units are prepared in the background."""
        return True

    def skip(self, count: int) -> None:
        """Leave out the next units. Only for executors that do not build ahead."""
        self._next += count

    def _has(self, unit: int) -> bool:
        return self._stop is None or unit < self._stop


class InlineExecutor(Executor):
    """Builds each unit when it is asked for."""

    def __init__(self, build: Build, start: int, stop: int | None):
        super().__init__(start, stop)
        self._build = build

    @property
    def builds_ahead(self) -> bool:
        return False

    def get(self) -> Any:
        if not self._has(self._next):
            raise StopIteration
        piece = self._build(self._next)
        self._next += 1
        return piece

    def close(self) -> None:
        pass


class AdaptiveExecutor(Executor):
    """Builds units itself, and hands over to a thread if they turn out to take long.

    For data in memory, where building a batch is often cheaper than waking a thread.
    """

    _LONG = 0.5e-3  # seconds; handing a batch over costs a tenth of that
    _TRIALS = 3

    def __init__(self, build: Build, start: int, stop: int | None, *, ahead: int):
        super().__init__(start, stop)
        self._build = build
        self._ahead = ahead
        self._num_long = 0
        self._threads: ThreadExecutor | None = None

    @property
    def builds_ahead(self) -> bool:
        return self._threads is not None

    def get(self) -> Any:
        if self._threads is not None:
            return self._threads.get()
        if not self._has(self._next):
            raise StopIteration
        begin = time.perf_counter()
        piece = self._build(self._next)
        is_long = time.perf_counter() - begin > self._LONG
        self._next += 1
        self._num_long = self._num_long + 1 if is_long else 0
        if self._num_long == self._TRIALS:
            self._threads = ThreadExecutor(
                self._build, self._next, self._stop, ahead=self._ahead
            )
        return piece

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


class ThreadExecutor(Executor):
    """Background threads build up to `ahead` units before they are asked for.

    The threads know the queue of tasks but not this object, so they end when it is
    closed or forgotten.
    """

    def __init__(
        self,
        build: Build,
        start: int,
        stop: int | None,
        *,
        ahead: int,
        num_threads: int = 1,
    ):
        super().__init__(start, stop)
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
