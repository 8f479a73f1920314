"""Which stream positions make up which batch of which process."""

from __future__ import annotations

import abc
import dataclasses
import functools

from kauldron.data.drop_remainder import DropRemainder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """Which process this is, of how many."""

    index: int = 0
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(abc.ABC):
    """How a stream is cut into units, each one batch (or record) of one process.

    Attributes:
      length: Records of one epoch of the stream.
      num_epochs: `None` for endless data.
      batch_size: Over all processes; `None` for single records.
      share: Which part of each batch belongs to this process.
      remainder: What happens to a last, smaller batch.
      start: Stream position of the first record, over all processes.
    """

    length: int
    num_epochs: int | None
    batch_size: int | None
    share: Share = Share()
    remainder: DropRemainder = DropRemainder.DROP
    start: int = 0

    @functools.cached_property
    def total(self) -> int | None:
        """Positions of the whole stream."""
        return None if self.num_epochs is None else self.num_epochs * self.length

    @functools.cached_property
    def local_batch_size(self) -> int:
        """Records of one unit on this process."""
        return (self.batch_size or self.share.count) // self.share.count

    @property
    @abc.abstractmethod
    def num_units(self) -> int | None:
        """Units from `start` to the end, `None` for endless data."""

    @abc.abstractmethod
    def positions(self, unit: int) -> range:
        """Stream positions of this process's part of a unit."""

    @abc.abstractmethod
    def position_after(self, units: int) -> int:
        """Stream position, over all processes, once `units` were consumed."""

    @property
    @abc.abstractmethod
    def may_be_short(self) -> bool:
        """Whether some batch may have fewer records than the others."""

    def is_full(self, unit: int) -> bool:
        """Whether the unit has as many records as the others."""
        return len(self.positions(unit)) == self.local_batch_size


class StreamPlan(Plan):
    """Epochs follow each other without a seam: a batch may span two of them."""

    @property
    def num_units(self) -> int | None:
        if self.total is None:
            return None
        remaining = self.total - self.start
        if not self.batch_size and not self._is_cut:  # single records, no step in lock
            remaining -= self.share.index
        return count_units(max(remaining, 0), self._global_size, self._is_cut)

    @property
    def may_be_short(self) -> bool:
        rest = 0 if self.total is None else self.total - self.start
        return rest % self._global_size != 0

    @functools.cached_property
    def _global_size(self) -> int:
        return self.local_batch_size * self.share.count

    @property
    def _is_cut(self) -> bool:
        return self.remainder is DropRemainder.DROP

    def positions(self, unit: int) -> range:
        size = self.local_batch_size
        first = self.start + unit * self._global_size + self.share.index * size
        return _clipped(first, first + size, self.total)

    def position_after(self, units: int) -> int:
        position = self.start + units * self._global_size
        return position if self.total is None else min(position, self.total)


class EpochPlan(Plan):
    """Every epoch is cut on its own: no batch spans two of them."""

    @property
    def num_units(self) -> int | None:
        if self.num_epochs is None:
            return None
        epoch, _ = self._start
        later = max(self.num_epochs - epoch - 1, 0) * self._units_per_epoch
        return (self._units_in_first if epoch < self.num_epochs else 0) + later

    @property
    def may_be_short(self) -> bool:
        size = self.local_batch_size * self.share.count
        ends = {self.length, self.length - self._start[1]}
        return any(records % size for records in ends)

    @property
    def _start(self) -> tuple[int, int]:
        return divmod(self.start, self.length) if self.length else (0, 0)

    @property
    def _units_in_first(self) -> int:
        return self._count(self.length - self._start[1])

    @property
    def _units_per_epoch(self) -> int:
        return self._count(self.length)

    def _count(self, records: int) -> int:
        size = self.local_batch_size * self.share.count
        return count_units(records, size, self.remainder is DropRemainder.DROP)

    def _epoch_and_offset(self, unit: int) -> tuple[int, int]:
        size = self.local_batch_size * self.share.count
        epoch, offset = self._start
        if unit < self._units_in_first:
            return epoch, offset + unit * size
        later, number = divmod(unit - self._units_in_first, self._units_per_epoch)
        return epoch + 1 + later, number * size

    def positions(self, unit: int) -> range:
        epoch, offset = self._epoch_and_offset(unit)
        size = self.local_batch_size
        first = epoch * self.length + offset + self.share.index * size
        return _clipped(first, first + size, (epoch + 1) * self.length)

    def position_after(self, units: int) -> int:
        if units == 0:
            return self.start
        epoch, offset = self._epoch_and_offset(units - 1)
        offset += self.local_batch_size * self.share.count
        if self._count(self.length - min(offset, self.length)) == 0:
            return (epoch + 1) * self.length
        return epoch * self.length + offset


class SparsePlan(Plan):
    """For streams with holes: each process walks its own positions, p, p+P, ...

    A unit is a span of positions, from which batches are made of what is there. `start`
    counts positions of this process alone.
    """

    @property
    def num_units(self) -> int | None:
        if self.total is None:
            return None
        local_total = -(-max(self.total - self.share.index, 0) // self.share.count)
        return count_units(
            max(local_total - self.start, 0), self.local_batch_size, False
        )

    @property
    def may_be_short(self) -> bool:
        return True

    def positions(self, unit: int) -> range:
        index, count = self.share.index, self.share.count
        first = self.start + unit * self.local_batch_size
        stop = index + (first + self.local_batch_size) * count
        if self.total is not None:
            stop = min(stop, self.total)
        return range(index + first * count, max(stop, index + first * count), count)

    def position_after(self, units: int) -> int:
        raise NotImplementedError("Depends on what was left out.")


def count_units(records: int, size: int, is_cut: bool) -> int:
    """How many groups of `size` fit, the last, smaller one counted unless cut."""
    return records // size if is_cut else -(-records // size)


def _clipped(first: int, stop: int, end: int | None) -> range:
    if end is not None:
        first, stop = min(first, end), min(stop, end)
    return range(first, stop)
