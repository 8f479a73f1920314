"""Batches: which stream positions they hold, on which process, and how to build one.

A `Plan` cuts a stream into units of work. A `BatchJob` builds any unit: a batch, a single
record, or what is left of a span in which records are missing.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import itertools
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.batch_mask import BATCH_MASK
from kauldron.data.engine import trees
from kauldron.data.engine.nodes import (
    Chunk,
    Positions,
    SkippedRecords,
    StreamNode,
    TransformNode,
    as_array,
)
from kauldron.errors import ReadableKeyError


class DropRemainder(enum.StrEnum):
    """What to do with the last, smaller batch.

    DROP leaves it out, KEEP yields it as it is, PAD fills it up with zeros, `False`
    and empty strings.

    >>> DropRemainder(True), DropRemainder("PAD")
    (<DropRemainder.DROP: 'drop'>, <DropRemainder.PAD: 'pad'>)
    """

    DROP = "drop"
    KEEP = "keep"
    PAD = "pad"

    @classmethod
    def _missing_(cls, value: Any) -> DropRemainder | None:
        if isinstance(value, bool):
            return cls.DROP if value else cls.KEEP
        if isinstance(value, str) and value.lower() in cls._value2member_map_:
            return cls(value.lower())
        legal = ", ".join(repr(member.value) for member in cls)
        raise ValueError(
            f"{value!r} is not a valid DropRemainder; use one of {legal}, True (drop) or"
            " False (keep)."
        )


def remainder_of(ds: Any) -> DropRemainder | None:
    """Return what data does with its last, smaller batch; `None` if unknown."""
    for name in ("batch_drop_remainder", "drop_remainder"):
        if hasattr(ds, name):
            return DropRemainder(getattr(ds, name))
    parent = getattr(ds, "parent", None)
    return None if parent is None else remainder_of(parent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """Which process this is, of how many."""

    index: int = 0
    count: int = 1


_inherited: Share | None = None


def current_share() -> Share:
    """This process among those of the job, as jax counts them.

    Without jax there is only one: a script that never imports jax need not start it.
    """
    if _inherited is not None:
        return _inherited
    jax = sys.modules.get("jax")
    if jax is None:
        return Share()
    return Share(index=jax.process_index(), count=jax.process_count())


def inherit_share(share: Share) -> None:
    """In a data worker: count as the process that started it."""
    global _inherited
    _inherited = share


@dataclasses.dataclass(frozen=True)
class BatchSize:
    """A batch size over all processes, and the part of each.

    >>> BatchSize(256).per_process
    256

    Raises:
      ValueError: The number of processes does not divide it.
    """

    total: int

    def __post_init__(self) -> None:
        if self.total < 0:
            raise ValueError(
                f"batch_size={self.total} is negative: expected 0 or more."
            )
        count = current_share().count
        if self.total % count:
            raise ValueError(
                f"batch_size={self.total} cannot be shared equally by {count} processes;"
                f" use a multiple of {count}."
            )

    @property
    def per_process(self) -> int:
        """Records of each batch that one process provides."""
        return self.total // current_share().count


# ----------------------------------------------------------------------------
# Plans
# ----------------------------------------------------------------------------


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
      cut_epochs: Whether no batch may span two epochs.
    """

    length: int
    num_epochs: int | None
    batch_size: int | None
    share: Share = Share()
    remainder: DropRemainder = DropRemainder.DROP
    start: int = 0
    cut_epochs: bool = False

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
        """Return whether the unit has as many records as the others."""
        return len(self.positions(unit)) == self.local_batch_size


class DensePlan(Plan):
    """For streams in which each position holds a record."""

    @property
    def num_units(self) -> int | None:
        if self.total is None:
            return None
        if not self.cut_epochs:
            return self._count(self.total - self.start)
        if self.start >= self.total:
            return 0
        epoch, offset = divmod(self.start, self.length)
        later = self.num_epochs - epoch - 1  # pyright: ignore[reportOptionalOperand]
        return self._count(self.length - offset) + later * self._count(self.length)

    @property
    def may_be_short(self) -> bool:
        if self.cut_epochs:
            ends = (self.length, self.length - self.start % (self.length or 1))
        else:
            ends = (0 if self.total is None else self.total - self.start,)
        return any(records % self._global_size for records in ends)

    def positions(self, unit: int) -> range:
        first, border = self._place(unit)
        first += self.share.index * self.local_batch_size
        stop = first + self.local_batch_size
        if border is not None:
            first, stop = min(first, border), min(stop, border)
        return range(first, stop)

    def position_after(self, units: int) -> int:
        if not units:
            return self.start
        first, border = self._place(units - 1)
        after = first + self._global_size
        if border is None:
            return after
        after = min(after, border)
        return border if self.cut_epochs and not self._count(border - after) else after

    def starts(self, units: range) -> np.ndarray:
        """Return the first stream position of this process's part of each unit."""
        first, _ = self._place(np.asarray(units))
        return first + self.share.index * self.local_batch_size

    def _place(self, unit: Any) -> tuple[Any, Any]:
        """Return where a unit begins, over all processes, and what it does not cross.

        Of an array of units, arrays.
        """
        if not self.cut_epochs:
            return self.start + unit * self._global_size, self.total
        epoch, offset = divmod(self.start, self.length)
        units_in_each = self._count(self.length)
        # The first epoch has fewer units: it begins in the middle.
        missing = units_in_each - self._count(self.length - offset)
        later, number = divmod(unit + missing, units_in_each)
        first = (epoch + later) * self.length + number * self._global_size
        first += (later == 0) * (offset - missing * self._global_size)
        return first, (epoch + later + 1) * self.length

    @functools.cached_property
    def _global_size(self) -> int:
        return self.local_batch_size * self.share.count

    def _count(self, records: int) -> int:
        """Return how many units so many records give on this process."""
        if self.remainder is DropRemainder.DROP:
            return records // self._global_size
        if not self.batch_size:  # single records: not all processes get one of the last
            records = max(records - self.share.index, 0)
        return -(-records // self._global_size)


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
        return -(-max(local_total - self.start, 0) // self.local_batch_size)

    @property
    def may_be_short(self) -> bool:
        return self.cut_epochs or self.total is not None

    def positions(self, unit: int) -> range:
        index, count = self.share.index, self.share.count
        first = self.start + unit * self.local_batch_size
        stop = index + (first + self.local_batch_size) * count
        if self.total is not None:
            stop = min(stop, self.total)
        return range(index + first * count, max(stop, index + first * count), count)

    def position_after(self, units: int) -> int:
        raise NotImplementedError("Depends on what was left out.")


# ----------------------------------------------------------------------------
# Building
# ----------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Piece:
    """The result of one unit of work.

    Attributes:
      value: The finished batch or record; if `survivors` is set, columns (batched) or a
        list of records (unbatched) still to be put together.
      survivors: Stream positions of the records in `value`, where some may be missing.
      skipped: What was wrong with the bad records that were left out.
    """

    value: Any
    survivors: np.ndarray | None = None
    skipped: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class BatchJob:
    """Everything needed to build any unit, in any order, in any thread or process.

    Attributes:
      node: The stream.
      plan: How it is cut.
      mask_key: Field that tells real records from filler, if any.
      skipped: Where bad records are noted, if they may be left out.
      owner: Which process the stream belongs to, if it is not shared by all.
      left_out: How many of the last transforms somebody else applies to the batches.
    """

    node: StreamNode
    plan: Plan
    mask_key: str | None = None
    skipped: SkippedRecords | None = None
    owner: Share | None = None
    left_out: int = 0

    def starting_at(self, position: int) -> BatchJob:
        """Return the same job from another position on."""
        plan = dataclasses.replace(self.plan, start=position)
        return dataclasses.replace(self, plan=plan)

    def without_last(self, count: int) -> BatchJob:
        """Return the same job, which leaves out its last transforms."""
        if not count:
            return self
        assert isinstance(self.node, TransformNode)
        node = self.node.without_last(count)
        return dataclasses.replace(self, node=node, left_out=count)

    def build(self, unit: int) -> Piece:
        """Build one unit."""
        positions = self.plan.positions(unit)
        if self.plan.batch_size and not isinstance(self.plan, SparsePlan):
            piece = self._build_batch(positions)
        else:
            piece = self._build_records(positions)
        if self.skipped is not None:
            piece.skipped = self.skipped.drain()
        return piece

    def build_stacked(self, units: range) -> Any | None:
        """Return several full batches, stacked on a new leading axis.

        `None` where that cannot be done at once: records are missing, or differ.
        """
        spans = [self.plan.positions(unit) for unit in units]
        positions = _joined_spans(spans)
        chunk = self.node.fetch(positions)
        if chunk.kept is not None:
            return None
        size = self.plan.local_batch_size
        if chunk.records is not None:  # such batches may differ in shapes and dtypes
            starts = range(0, chunk.size, size)
            groups = [chunk.records[start : start + size] for start in starts]
            batches = [
                self.with_masks(self.columns(Chunk(size, records=group), span), size)
                for group, span in zip(groups, spans)
            ]
            is_alike = all(trees.form(b) == trees.form(batches[0]) for b in batches)
            return trees.stack(batches) if is_alike else None
        batch = self.with_masks(self.columns(chunk, positions), len(positions))
        lead = (len(units), size)
        return trees.map_leaves(lambda c: c.reshape(*lead, *c.shape[1:]), batch)

    def finish(self, columns: Any, size: int) -> Any:
        """Return a batch of `size` real records ready to use: padded, with masks."""
        wanted = size
        if self.plan.remainder is DropRemainder.PAD:
            wanted = self.plan.local_batch_size
        if size < wanted:
            columns = trees.pad_rows(columns, wanted)
        return self.with_masks(columns, size, wanted)

    @functools.cached_property
    def mask_names(self) -> tuple[str, ...]:
        """Fields that tell real records from filler: the user's, and that of metrics."""
        names = () if self.mask_key is None else (self.mask_key,)
        is_padded = self.plan.remainder is DropRemainder.PAD
        may_pad = is_padded and self.plan.batch_size and self.plan.may_be_short
        return (*names, BATCH_MASK) if may_pad else names

    def with_masks(self, columns: Any, real: int, size: int | None = None) -> Any:
        """Return the batch with the fields that are true for its first `real` records.

        It has `size` records; by default all of them are real.
        """
        names, size = self.mask_names, real if size is None else size
        if real < size and BATCH_MASK not in names:
            names = (*names, BATCH_MASK)  # records are missing that should be there
        if not isinstance(columns, dict):
            self._tell_that_there_is_no_field(columns, has_filler=real < size)
            return columns
        for name in names:
            if name in columns:
                raise ReadableKeyError(
                    f"batch_mask_key={name!r}: the records already have a field of that"
                    f" name. Their fields: {sorted(columns)}."
                )
        return {**columns, **{name: np.arange(size) < real for name in names}}

    def _tell_that_there_is_no_field(self, columns: Any, *, has_filler: bool) -> None:
        kind = type(columns).__name__
        if self.mask_key is not None:
            raise TypeError(
                f"batch_mask_key={self.mask_key!r} needs records that are dicts, not"
                f" {kind}."
            )
        if has_filler and self.plan.batch_size:
            warnings.warn(
                f"The last batch is filled up with zeros, but a {kind} has no place for"
                " the mask that keeps them out of losses and metrics: make the records"
                " dicts.",
                stacklevel=2,
            )

    def columns(self, chunk: Chunk, positions: Positions) -> Any:
        """Return the chunk as columns that the caller may write to."""
        if chunk.records is None:
            return trees.map_leaves(_writeable, chunk.columns)
        try:
            return trees.stack(chunk.records)
        except trees.RecordMismatchError as error:
            rows = chunk.of_kept(positions)
            names = [self.node.locate(int(rows[row])) for row in error.rows]
            raise ValueError(error.described(*names)) from None

    def _build_batch(self, positions: range) -> Piece:
        if not positions:  # the others have the last real records: filler of that form
            assert self.plan.total
            last = range(self.plan.total - 1, self.plan.total)
            columns = self.columns(self.node.fetch(last), last)
            return Piece(self.finish(trees.take_rows(columns, slice(0)), 0))
        chunk = self.node.fetch(positions)
        if chunk.kept is None:
            return Piece(self.finish(self.columns(chunk, positions), len(positions)))
        return self._survivors(chunk, positions)

    def _build_records(self, positions: range) -> Piece:
        chunk = self.node.fetch(positions)
        if chunk.kept is None and not isinstance(self.plan, SparsePlan):
            return Piece(chunk.own_records()[0])
        return self._survivors(chunk, positions)

    def _survivors(self, chunk: Chunk, positions: range) -> Piece:
        rows = chunk.of_kept(positions)
        if not chunk.size:
            return Piece(None, rows)
        if self.plan.batch_size:
            return Piece(self.columns(chunk, positions), rows)
        return Piece(chunk.own_records(), rows)


def _writeable(column: Any) -> np.ndarray:
    if type(column) is np.ndarray and column.flags.writeable:
        return column
    return np.array(column)


def _joined_spans(spans: Sequence[range]) -> Positions:
    """Spans one after another, as one span where they follow each other."""
    if all(a.stop == b.start for a, b in itertools.pairwise(spans)):
        return range(spans[0].start, spans[-1].stop)
    return np.concatenate([as_array(span) for span in spans])
