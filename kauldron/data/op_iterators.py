"""The iterators behind map, take, cache and prefetch.

All hand on the state of the iterator below, at the place where the *consumer* is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

from kauldron.data.engine.executors import ThreadExecutor
from kauldron.data.iters.iterator import Iterator


class OpIterator:
    """Hands on what the parent gives, and its state."""

    def __init__(self, parent: Iterator):
        self._parent = parent

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> dict[str, Any]:
        return self._parent.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._parent.set_state(state)

    def close(self) -> None:
        self._parent.close()


class MapIterator(OpIterator):
    """Applies a function to each batch."""

    def __init__(self, parent: Iterator, map_fn: Callable[[Any], Any]):
        super().__init__(parent)
        self._map_fn = map_fn

    def __next__(self) -> Any:
        return self._map_fn(next(self._parent))


class TakeIterator(OpIterator):
    """Ends after some batches; the state knows how many came already."""

    def __init__(self, parent: Iterator, count: int):
        super().__init__(parent)
        self._count = count
        self._taken = 0

    def __next__(self) -> Any:
        if self._taken >= self._count:
            raise StopIteration
        batch = next(self._parent)
        self._taken += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        state = self._parent.get_state()
        return {**state, "taken": [self._taken, *state.get("taken", [])]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        taken, *below = state.get("taken", [0])
        self._parent.set_state({**state, "taken": below} if below else state)
        self._taken = taken


@dataclasses.dataclass
class KeptBatches:
    """What a first full pass has read: batches, each with the state after it."""

    batches: list[tuple[Any, dict[str, Any]]] | None = None


class CacheIterator(OpIterator):
    """Reads the parent once; afterwards gives what was kept."""

    def __init__(self, parent: Iterator, kept: KeptBatches):
        super().__init__(parent)
        self._kept = kept
        self._state = parent.get_state()
        self._collected: list[tuple[Any, dict[str, Any]]] | None = []
        self._next = 0

    def __next__(self) -> Any:
        if self._kept.batches is None:
            return self._read()
        if self._next >= len(self._kept.batches):
            raise StopIteration
        batch, self._state = self._kept.batches[self._next]
        self._next += 1
        return batch

    def _read(self) -> Any:
        try:
            batch = next(self._parent)
        except StopIteration:
            self._kept.batches = self._collected
            raise
        except Exception:
            self._collected = None  # what follows may not be all of the rest
            raise
        self._next += 1
        self._state = self._parent.get_state()
        if self._collected is not None:
            self._collected.append((batch, self._state))
        return batch

    def get_state(self) -> dict[str, Any]:
        return self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)
        states = [after for _, after in self._kept.batches or []]
        if self._state in states:
            self._next = states.index(self._state) + 1
            return
        self._parent.set_state(state)
        self._kept = KeptBatches()  # the rest of a pass is no full pass
        self._collected = None


class PrefetchIterator(OpIterator):
    """A thread reads ahead; each batch comes with the state after it."""

    def __init__(self, parent: Iterator, buffer_size: int):
        super().__init__(parent)
        self._buffer_size = buffer_size
        self._state = parent.get_state()
        self._executor: ThreadExecutor | None = None

    def __next__(self) -> Any:
        if self._executor is None:
            read = _reader(self._parent)
            self._executor = ThreadExecutor(read, 0, None, ahead=self._buffer_size)
        batch, state, error = self._executor.get()
        if error is not None:
            raise error
        self._state = state
        return batch

    def get_state(self) -> dict[str, Any]:
        return self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._stop()
        self._parent.set_state(state)
        self._state = dict(state)

    def close(self) -> None:
        self._stop()
        self._parent.close()

    def _stop(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()


def _reader(parent: Iterator) -> Callable[[int], Any]:
    """What the thread runs. It must not know the iterator, which could then not end.

    Errors (and the end of the data) wait in line with the batches: the consumer meets
    them where they happened, and what was read after them is not lost.
    """

    def read(unit: int) -> Any:
        del unit
        try:
            return next(parent), parent.get_state(), None
        except BaseException as error:
            return None, {}, error

    return read
