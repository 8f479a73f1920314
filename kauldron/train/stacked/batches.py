"""The batches of a stack: trainings on the same data share them, others have their own."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from kauldron.data import DeviceRecords, DeviceTransforms
from kauldron.train.run.feed import position_of

if TYPE_CHECKING:
    from kauldron.train.run.feed import Feeder
    from kauldron.train.stacked.unit import Unit
    from kauldron.train.trainer import Trainer


def data_key(trainer: Trainer, *, with_seed: bool = True) -> Any:
    """Return what is equal for trainers whose batches are the same.

    If `with_seed`, they also come in the same order.
    """
    if trainer.raw_cfg is None:
        return id(trainer.train_ds)
    cfg = json.loads(trainer.raw_cfg.to_json()).get("train_ds")
    seed = getattr(trainer.train_ds, "seed", None)
    return json.dumps(cfg, sort_keys=True), str(seed) if with_seed else None


@dataclasses.dataclass(eq=False)
class Source:
    """The data of trainings that share batches.

    Attributes:
      trainer: One of them.
      iterator: Gives the batches from `start` on.
      start: The step of the first batch.
      stop: The step after that of the last batch that anyone needs.
    """

    trainer: Trainer
    iterator: Any
    start: int
    stop: int

    @property
    def inner(self) -> Any:
        """The iterator without what other libraries' iterators are wrapped in."""
        return getattr(self.iterator, "iter", self.iterator)


def sources_of(units: Sequence[Unit]) -> list[Source]:
    """Return the data of units, and let each know which of it is its own."""
    numbers: dict[Any, int] = {}
    sources: list[Source] = []
    for unit in units:
        begin, key = unit.begin, data_key(unit.trainer)
        own = Source(unit.trainer, begin.ds_iter, begin.step, unit.last)
        unit.source = numbers.setdefault(key, len(sources))
        if unit.source == len(sources):
            sources.append(own)
            continue
        shared = sources[unit.source]
        if own.start < shared.start:
            own.iterator, shared.iterator = shared.iterator, own.iterator
            shared.start = own.start
        shared.stop = max(shared.stop, own.stop)
        own.iterator.close()
    return sources


class JoinedIterator:
    """Iterates over several sources in step; each batch is a tuple with one of each.

    A source that has not begun, or that nobody needs any more, is filled in for by
    another: its trainings are not updated in these steps.
    """

    def __init__(self, sources: Sequence[Source], *, step: int):
        self._sources = sources
        self._step = step
        if all(hasattr(source.inner, "next_batches") for source in sources):
            self.next_batches = self._next_batches
        if all(hasattr(source.inner, "next_positions") for source in sources):
            self.next_positions = self._next_positions

    def __iter__(self) -> JoinedIterator:
        return self

    def __next__(self) -> tuple[Any, ...]:
        batches = self._read(lambda source: next(source.iterator))
        self._step += 1
        return tuple(batches)

    def _next_batches(self, count: int) -> tuple[Any, ...]:
        batches = self._read(lambda source: source.inner.next_batches(count))
        self._step += len(jax.tree.leaves(batches)[0])
        return tuple(batches)

    def _next_positions(self, count: int) -> list[np.ndarray]:
        found = self._read(lambda source: source.inner.next_positions(count))
        self._step += len(found[0])
        return found

    def _read(self, read: Any) -> list[Any]:
        found = _in_threads(
            lambda source: (
                read(source) if source.start <= self._step < source.stop else None
            ),
            self._sources,
        )
        filler = next((item for item in found if item is not None), None)
        if filler is None:
            raise StopIteration
        return [filler if item is None else item for item in found]

    def get_state(self) -> tuple[Any, ...]:
        """Return the position of each source."""
        return tuple(position_of(source.iterator) for source in self._sources)

    def close(self) -> None:
        """Close all sources."""
        for source in self._sources:
            source.iterator.close()


@dataclasses.dataclass(frozen=True)
class Position:
    """The position in one source, as far as the loop has received its batches."""

    feeder: Feeder
    source: int

    def get_state(self) -> Any:
        """Return what a checkpoint stores."""
        return self.feeder.get_state()[self.source]


@dataclasses.dataclass(frozen=True)
class JoinedRecords:
    """The records of several sources that differ in their order alone, on the device.

    Attributes:
      by_source: The records of each source; they share their columns.
    """

    by_source: Sequence[DeviceRecords]

    @property
    def columns(self) -> Any:
        """The records."""
        return self.by_source[0].columns

    def rows(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Return rows of records, `int32[steps, source, batch]`, of positions by source."""
        steps, size = positions[0].shape
        found = np.empty((steps, len(positions), size), np.int32)

        def fill(number: int) -> None:
            found[:, number] = self.by_source[number].rows(positions[number])

        _in_threads(fill, range(len(positions)))
        return found


def on_device(
    sources: Sequence[Source],
) -> tuple[JoinedRecords | None, DeviceTransforms | None]:
    """Put the records on the device once, or else leave transforms to it.

    Returns:
      Records and transforms; `None` where sources differ in more than their order.
    """
    keys = {data_key(source.trainer, with_seed=False) for source in sources}
    if len(keys) > 1 or not all(hasattr(s.inner, "next_positions") for s in sources):
        return None, None
    first, *others = [source.trainer for source in sources]
    records = DeviceRecords.of(first.train_ds)
    if records is not None:
        own = [records.in_order_of(trainer.train_ds) for trainer in others]
        return JoinedRecords([records, *own]), None
    transforms = DeviceTransforms.of(first.train_ds, sharding=first.sharding.batch)
    if transforms is not None:
        for source in sources:
            transforms.leave_out(source.iterator)
    return None, transforms


def _in_threads(function: Any, items: Sequence[Any]) -> list[Any]:
    """Apply a function to items; numpy lets go of the interpreter in much of its work."""
    if len(items) == 1:
        return [function(items[0])]
    futures = [_threads().submit(function, item) for item in items]
    return [future.result() for future in futures]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    # More than a few wait for each other: 16 were half as fast as four on 16 cores.
    count = min(4, os.cpu_count() or 1)
    return ThreadPoolExecutor(count, thread_name_prefix="stacked-batches")
