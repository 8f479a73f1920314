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
    """Reads, stacks and places batches in a thread, a few dispatches ahead.

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
          depth: How many dispatches to prepare; 0 reads when asked, in the caller's
            thread.
          while_waiting: Called now and then while the data keeps the loop waiting; may
            raise.
        """
        self._iterator = iterator
        self._feeds = read_feeds(iterator, destination, step)
        self._position = position_of(iterator)
        self._while_waiting = while_waiting
        self._depth = depth
        self._ready: queue.SimpleQueue[Feed | _End] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # places in `_ready`
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
        self._is_closed = True
        if self._thread is not None:
            self._free.put(None)  # it may wait for a place
            self._thread.join(_PATIENCE_SECONDS)
            if self._thread.is_alive():
                status.log_warning(
                    "The data source does not return: its thread is left behind."
                )
                return
        self._iterator.close()

    def _from_thread(self) -> Feed | _End:
        if self._thread is None:
            for _ in range(self._depth):
                self._free.put(None)
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
                self._free.put(None)
                return item

    #
    # The producing side
    #

    def _fill(self) -> None:
        item: Feed | _End | None = None
        while not isinstance(item, _End):
            self._free.get()
            if self._is_closed:
                return
            item = self._read()
            self._ready.put(item)

    def _read(self) -> Feed | _End:
        try:
            return next(self._feeds, None) or _End()
        except BaseException as error:  # whatever it is, the loop must hear of it
            return _End(error)
