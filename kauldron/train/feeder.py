"""The next batches, on the devices before the loop asks for them."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kauldron.train.feeds import Destination, Feed, position_of, read_feeds
from kauldron.utils import status

_LOOK_UP_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class _End:
    """Nothing follows: the data ended, or reading failed."""

    error: BaseException | None = None


class Feeder:
    """Reads, stacks and places batches in a thread, ahead of the loop.

    `get_state` describes what the loop has received: what waits in the queue counts as
    not consumed.
    """

    def __init__(
        self,
        iterator: Any,
        destination: Destination,
        *,
        step: int,
        depth: int = 2,
        while_waiting: Callable[[], None] = lambda: None,
    ):
        """Prepare reading; it begins when the first feed is asked for.

        Args:
          iterator: The data iterator; with `get_state`, its position is tracked. Closed
            with the feeder.
          destination: How many batches a dispatch takes, and where they are placed.
          step: Number of the first step.
          depth: Another feed is prepared while fewer batches than this wait; 0 reads
            when asked, in the caller's thread.
          while_waiting: Called now and then while the data keeps the loop waiting; may
            raise.
        """
        self._iterator = iterator
        self._feeds = read_feeds(iterator, destination, step)
        self._position = position_of(iterator)
        self._while_waiting = while_waiting
        self._depth = depth
        self._ready: queue.SimpleQueue[Feed | _End] = queue.SimpleQueue()
        self._num_waiting = 0  # batches in `_ready`
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._end: _End | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[Feed]:
        return self

    def __next__(self) -> Feed:
        """The next feed; raises what reading it raised."""
        item = self._end or (self._from_thread() if self._depth else self._read())
        if isinstance(item, _End):
            self._end = item
            if item.error is None:
                raise StopIteration
            raise item.error
        self._position = item.position
        return item

    def get_state(self) -> Any:
        """Position of the data iterator after what the loop has received."""
        return self._position

    def close(self) -> None:
        """Stop the thread and close the iterator; what was prepared is dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
            if self._thread.is_alive():
                status.log_warning(
                    "The data source does not return: its thread is left behind."
                )
                return
        self._iterator.close()

    def _from_thread(self) -> Feed | _End:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._fill, name="kauldron-feeder", daemon=True
            )
            self._thread.start()
        while True:
            try:
                item = self._ready.get(timeout=_LOOK_UP_SECONDS)
            except queue.Empty:
                self._while_waiting()
            else:
                if isinstance(item, Feed):
                    self._add_waiting(-item.size)
                return item

    #
    # The producing side
    #

    def _fill(self) -> None:
        while self._wait_for_a_place():
            item = self._read()
            if isinstance(item, Feed):
                self._add_waiting(item.size)
            self._ready.put(item)
            if isinstance(item, _End):
                return

    def _wait_for_a_place(self) -> bool:
        """Whether to read on, once there is room for it."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._num_waiting < self._depth
            )
        return not self._is_closed

    def _add_waiting(self, count: int) -> None:
        with self._changed:
            self._num_waiting += count
            self._changed.notify()

    def _read(self) -> Feed | _End:
        try:
            return next(self._feeds, None) or _End()
        except BaseException as error:  # whatever it is, the loop must hear of it
            return _End(error)
