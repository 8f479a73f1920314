"""Building one unit of work: a batch, a record, or what is left of a span."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.drop_remainder import DropRemainder
from kauldron.data.engine import record_tree, stacking
from kauldron.data.engine.chunk import Chunk, Positions, as_array
from kauldron.data.engine.plans import Plan, Share, SparsePlan
from kauldron.data.engine.skipped_records import SkippedRecords
from kauldron.data.engine.stream_node import StreamNode
from kauldron.utils.batch_mask import BATCH_MASK


@dataclasses.dataclass(slots=True)
class Piece:
    """What comes out of one unit of work.

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
      cut_epochs: Whether no batch may span two epochs.
    """

    node: StreamNode
    plan: Plan
    mask_key: str | None = None
    skipped: SkippedRecords | None = None
    owner: Share | None = None
    cut_epochs: bool = False

    def starting_at(self, position: int) -> BatchJob:
        """The same job from another position on."""
        plan = dataclasses.replace(self.plan, start=position)
        return dataclasses.replace(self, plan=plan)

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
        """Several full batches at once, stacked on a new leading axis.

        Returns:
          `None` where that cannot be done at once: records are missing, or differ.
        """
        first = self._build_flat(units[:1])
        if first is None:
            return None
        size, form = self.plan.local_batch_size, _row_form(first)
        rows = len(units) * size
        outputs = [np.empty((rows, *shape), dtype) for _, shape, dtype in form]
        _copy_rows(first, outputs, 0)
        # As many at once as stay in the processor's cache, and each part copied away at
        # once, so that its memory is used again: that is where the time goes.
        unit_bytes = sum(output.nbytes for output in outputs) // len(units)
        at_once = max(1, _CACHED_BYTES // max(1, unit_bytes))
        for start in range(1, len(units), at_once):
            part = self._build_flat(units[start : start + at_once])
            if part is None or _row_form(part) != form:
                return None
            _copy_rows(part, outputs, start * size)
        shape = (len(units), size)
        stacked = iter([o.reshape(*shape, *o.shape[1:]) for o in outputs])
        return record_tree.map_leaves(lambda _: next(stacked), first)

    def _build_flat(self, units: range) -> Any | None:
        """Full batches one after another along the first axis."""
        positions = _joined([self.plan.positions(unit) for unit in units])
        chunk = self.node.fetch(positions)
        if chunk.kept is not None:
            return None
        columns = self.columns(chunk, positions)
        size = len(positions)
        return self.with_masks(columns, size, size)

    def finish(self, columns: Any, size: int) -> Any:
        """A batch of `size` real records as it is handed out: padded, with masks."""
        wanted = size
        if self.plan.remainder is DropRemainder.PAD:
            wanted = self.plan.local_batch_size
        if size < wanted:
            columns = stacking.pad_rows(columns, wanted)
        return self.with_masks(columns, size, wanted)

    @functools.cached_property
    def mask_names(self) -> tuple[str, ...]:
        """Fields that tell real records from filler: the user's, and that of metrics."""
        names = () if self.mask_key is None else (self.mask_key,)
        is_endless = isinstance(self.plan, SparsePlan) and self.plan.total is None
        may_pad = (
            self.plan.batch_size is not None
            and self.plan.remainder is DropRemainder.PAD
            and self.plan.may_be_short
            and (self.cut_epochs or not is_endless)
        )
        return (*names, BATCH_MASK) if may_pad else names

    def with_masks(self, columns: Any, real: int, size: int) -> Any:
        """The batch with the fields that are true for real records."""
        names = self.mask_names
        if real < size and BATCH_MASK not in names:
            names = (*names, BATCH_MASK)  # records are missing that should be there
        if not isinstance(columns, dict):
            self._tell_that_there_is_no_field(columns, has_filler=real < size)
            return columns
        for name in names:
            if name in columns:
                raise KeyError(
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
        """The chunk as columns that the caller may write to.

        Raises:
          ValueError: Two records do not fit together; says which and why.
        """
        if chunk.records is None:
            return record_tree.map_leaves(_writeable, chunk.columns)
        try:
            return stacking.stack(chunk.records)
        except stacking.RecordMismatchError as error:
            rows = as_array(positions)
            rows = rows if chunk.kept is None else rows[chunk.kept]
            names = [self.node.locate(int(rows[row])) for row in error.rows]
            raise ValueError(error.described(*names)) from None

    def _build_batch(self, positions: range) -> Piece:
        if not positions:  # the others have the last real records: filler of that form
            assert self.plan.total
            last = range(self.plan.total - 1, self.plan.total)
            columns = self.columns(self.node.fetch(last), last)
            return Piece(self.finish(stacking.take_rows(columns, slice(0)), 0))
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
        rows = as_array(positions)
        rows = rows if chunk.kept is None else rows[chunk.kept]
        if not chunk.size:
            return Piece(None, rows)
        if self.plan.batch_size:
            return Piece(self.columns(chunk, positions), rows)
        return Piece(chunk.own_records(), rows)


_CACHED_BYTES = 1 << 20


def _row_form(columns: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    return [(path, shape[1:], dtype) for path, shape, dtype in stacking.form(columns)]


def _copy_rows(columns: Any, outputs: Sequence[np.ndarray], start: int) -> None:
    leaves = record_tree.leaves_with_paths(columns)
    for output, (_, column) in zip(outputs, leaves):
        output[start : start + len(column)] = column


def _writeable(column: Any) -> np.ndarray:
    if type(column) is np.ndarray and column.flags.writeable:
        return column
    return np.array(column)


def _joined(spans: Sequence[range]) -> Positions:
    """Spans one after another, as one span where they follow each other."""
    if all(a.stop == b.start for a, b in itertools.pairwise(spans)):
        return range(spans[0].start, spans[-1].stop)
    return np.concatenate([as_array(span) for span in spans])
