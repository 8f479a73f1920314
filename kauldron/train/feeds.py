"""Reading the batches of one dispatch and bringing them to the devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

if TYPE_CHECKING:
    from kauldron.data import DeviceRecords


@dataclasses.dataclass(frozen=True)
class Feed:
    """Batches for one dispatch.

    Attributes:
      size: Number of batches.
      batch: The batch on the devices; with `size > 1`, that many stacked on a new
        leading axis. Of records that live there: only their rows.
      position: State of the data iterator after these batches.
      is_rows: Whether `batch` holds rows of records.
    """

    size: int
    batch: Any
    position: Any
    is_rows: bool = False


class Destination(Protocol):
    """Where feeds go: how many batches a dispatch takes, and how they are placed."""

    @property
    def records(self) -> DeviceRecords | None: ...

    def size_at(self, step: int) -> int: ...

    def put(self, batch: Any, size: int) -> Any: ...

    def put_rows(self, rows: np.ndarray) -> Any: ...


def read_feeds(iterator: Any, destination: Destination, step: int) -> Iterator[Feed]:
    """The feeds of a run, from the dispatch at `step` to the end of the data."""
    reader = _Reader(iterator, destination)
    while True:
        try:
            feeds = reader.read(destination.size_at(step))
        except StopIteration:
            return
        for feed in feeds:
            step += feed.size
            yield feed


def position_of(iterator: Any) -> Any:
    """Where an iterator is; `None` if it cannot tell."""
    get_state = getattr(iterator, "get_state", None)
    return None if get_state is None else get_state()


class _Reader:
    def __init__(self, iterator: Any, destination: Destination):
        self._iterator = iterator
        self._to = destination
        # Iterators of other libraries are wrapped, and do not have these.
        inner = getattr(iterator, "iter", iterator)
        self._next_batches: Callable[[int], Any] | None = getattr(
            inner, "next_batches", None
        )
        self._next_positions: Callable[[int], np.ndarray] | None = None
        if destination.records is not None:
            self._next_positions = inner.next_positions

    def read(self, size: int) -> list[Feed]:
        """Up to `size` batches as one feed, or one by one where they do not stack."""
        if self._next_positions is not None:
            try:
                return [self._read_rows(size)]
            except StopIteration:  # what is left are no full batches
                self._next_positions = None
        if size > 1 and self._next_batches is not None:
            return [self._read_stacked(size)]
        return self._read_one_by_one(size)

    def _read_rows(self, size: int) -> Feed:
        assert self._next_positions is not None
        assert self._to.records is not None
        rows = self._to.records.rows(self._next_positions(size))
        size = len(rows)
        rows = self._to.put_rows(rows if size > 1 else rows[0])
        return Feed(size, rows, position_of(self._iterator), is_rows=True)

    def _read_stacked(self, size: int) -> Feed:
        assert self._next_batches is not None
        batches = self._next_batches(size)
        size = len(jax.tree.leaves(batches)[0])
        if size == 1:
            batches = jax.tree.map(lambda leaf: leaf[0], batches)
        return Feed(size, self._to.put(batches, size), position_of(self._iterator))

    def _read_one_by_one(self, size: int) -> list[Feed]:
        batches, positions = [], []
        for _ in range(size):
            try:
                batches.append(next(self._iterator))
            except StopIteration:
                if not batches:
                    raise
                break
            positions.append(position_of(self._iterator))
        if len(batches) > 1 and _have_equal_shapes(batches):
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
            count = len(batches)
            return [Feed(count, self._to.put(stacked, count), positions[-1])]
        return [
            Feed(1, self._to.put(batch, 1), position)
            for batch, position in zip(batches, positions)
        ]


def _have_equal_shapes(batches: list[Any]) -> bool:
    shapes = [
        [(np.shape(leaf), np.result_type(leaf)) for leaf in jax.tree.leaves(batch)]
        for batch in batches
    ]
    return all(shape == shapes[0] for shape in shapes)
