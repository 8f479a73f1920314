"""The next batches, on the devices before the loop asks for them."""

from __future__ import annotations

import dataclasses
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Feed:
    """Batches for one dispatch.

    Attributes:
      size: Number of batches.
      batch: The batch on the devices; with `size > 1`, that many stacked on a new
        leading axis.
      position: State of the data iterator after these batches.
    """

    size: int
    batch: Any
    position: Any


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
        *,
        step: int,
        size_at: Callable[[int], int],
        put: Callable[[Any, int], Any],
        depth: int = 2,
    ):
        """Start reading.

        Args:
          iterator: The data iterator; with `get_state`, its position is tracked.
          step: Number of the first step.
          size_at: How many batches the dispatch at a step takes.
          put: `put(batch, size)` brings host data to the devices.
          depth: How many dispatches to prepare; 0 reads when asked, in the caller's
            thread.
        """
        self._iterator = iterator
        self._size_at = size_at
        self._put = put
        self._position = self._current_position()
        self._items = self._produce(step)
        self._closed = threading.Event()
        if depth:
            self._queue: queue.Queue[Feed | _End] = queue.Queue(depth)
            self._thread = threading.Thread(
                target=self._fill,
                args=(self._items,),
                name="kauldron-feeder",
                daemon=True,
            )
            self._items = iter(self._queue.get, None)
            self._thread.start()

    def __iter__(self) -> Feeder:
        return self

    def __next__(self) -> Feed:
        """The next feed; raises what reading it raised."""
        item = next(self._items)
        if isinstance(item, _End):
            self._items = itertools.repeat(item)
            if item.error is None:
                raise StopIteration
            raise item.error
        self._position = item.position
        return item

    def get_state(self) -> Any:
        """Position of the data iterator after what the loop has received."""
        return self._position

    def close(self) -> None:
        """Stop the thread; what it had prepared is dropped."""
        self._closed.set()
        if hasattr(self, "_thread"):
            while self._thread.is_alive():
                _drain(self._queue)
                self._thread.join(timeout=0.01)

    #
    # The producing side
    #

    def _fill(self, items: Iterator[Feed | _End]) -> None:
        for item in items:
            while not self._closed.is_set():
                try:
                    self._queue.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._closed.is_set():
                return

    def _produce(self, step: int) -> Iterator[Feed | _End]:
        try:
            while True:
                size = self._size_at(step)
                for feed in self._read(size):
                    step += feed.size
                    yield feed
        except StopIteration:
            yield _End()
        except Exception as error:
            yield _End(error)

    def _read(self, size: int) -> list[Feed]:
        """`size` batches as one feed, or one by one where they do not stack."""
        if size > 1 and hasattr(self._iterator, "next_batches"):
            batches = self._iterator.next_batches(size)
            size = len(jax.tree.leaves(batches)[0])
            return [Feed(size, self._put(batches, size), self._current_position())]
        batches, positions = [], []
        for _ in range(size):
            try:
                batches.append(next(self._iterator))
            except StopIteration:
                if not batches:
                    raise
                break
            positions.append(self._current_position())
        if len(batches) > 1 and _have_equal_shapes(batches):
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
            count = len(batches)
            return [Feed(count, self._put(stacked, count), positions[-1])]
        return [
            Feed(1, self._put(batch, 1), position)
            for batch, position in zip(batches, positions)
        ]

    def _current_position(self) -> Any:
        get_state = getattr(self._iterator, "get_state", None)
        return None if get_state is None else get_state()


def _have_equal_shapes(batches: list[Any]) -> bool:
    shapes = [
        [(np.shape(leaf), np.result_type(leaf)) for leaf in jax.tree.leaves(batch)]
        for batch in batches
    ]
    return all(shape == shapes[0] for shape in shapes)


def _drain(items: queue.Queue[Any]) -> None:
    try:
        while True:
            items.get_nowait()
    except queue.Empty:
        pass
