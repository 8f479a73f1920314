"""Transforms that turn one record into one record or none, applied to many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import record_rngs, record_tree, stacking
from kauldron.data.engine.chunk import Chunk, Positions, as_array
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.skipped_records import SkippedRecords
from kauldron.data.engine.stream_node import StreamNode, deeper
from kauldron.data.transforms.batch_forms import batch_form

_ON_EACH_RECORD = (
    Kind.MAP,
    Kind.RANDOM_MAP,
    Kind.FILTER,
    Kind.MAP_WITH_INDEX,
    Kind.CALL,
)


def works_on_each_record(entry: Entry) -> bool:
    """Whether the entry belongs in a `TransformNode`."""
    return entry.kind in _ON_EACH_RECORD


class TransformNode(StreamNode):
    """The parent's records after some transforms.

    Columns stay columns as long as transforms have a batch form; an entry without one
    gets the records one by one, and only that entry pays for it.
    """

    def __init__(
        self,
        parent: StreamNode,
        entries: Sequence[Entry],
        *,
        skipped: SkippedRecords | None = None,
    ):
        self.parent = parent
        self.length = parent.length
        self.is_sparse = parent.is_sparse or any(e.may_drop for e in entries)
        self.entries = tuple(entries)
        self._skipped = skipped
        self._steps = []
        leaf_seeds = parent.leaf_seeds
        for entry in entries:
            leaf_seeds = deeper(leaf_seeds)
            if entry.kind is not Kind.SLICE:  # done at the source, but counted
                self._steps.append(_Step(entry, leaf_seeds))
        self.leaf_seeds = leaf_seeds
        self._stack_before = len(self._steps)

    def stack_early(self) -> None:
        """Turn records into columns as soon as nothing needs them one by one.

        For the last node before the batch: then nobody sees the difference, except in
        time.
        """
        while self._stack_before and self._steps[self._stack_before - 1].on_columns:
            self._stack_before -= 1

    def fetch(self, positions: Positions) -> Chunk:
        chunk = self.parent.fetch(positions)
        for number, step in enumerate(self._steps):
            if not chunk.size:
                break
            if number == self._stack_before:
                chunk = _try_to_stack(chunk)
            chunk = self._apply(step, chunk, positions)
        return chunk

    def locate(self, position: int) -> str:
        return self.parent.locate(position)

    def filter_names(self) -> list[str]:
        mine = [str(entry) for entry in self.entries if entry.may_drop]
        return self.parent.filter_names() + mine

    def _apply(self, step: _Step, chunk: Chunk, positions: Positions) -> Chunk:
        if chunk.records is None and step.on_columns:
            try:
                return step.apply_to_columns(chunk, positions)
            except Exception as error:
                return self._find_bad_record(step, chunk, positions, error)
        records = chunk.as_records() if step.is_ours else chunk.own_records()
        is_fresh = chunk.is_fresh or not step.is_ours
        results, _ = self._apply_to_records(step, chunk, records, positions)
        changed = chunk.with_records(results, is_fresh=is_fresh)
        return _try_to_stack(changed) if chunk.records is None else changed

    def _find_bad_record(
        self, step: _Step, chunk: Chunk, positions: Positions, error: Exception
    ) -> Chunk:
        """Find out at which record a batch form fails; leave it out if allowed."""
        records = chunk.own_records()
        results, has_failed = self._apply_to_records(step, chunk, records, positions)
        if not has_failed:
            error.add_note(
                f"In the batch form of {step.entry}; record by record it does not fail."
                f" The batch: {record_tree.describe(chunk.columns)}."
            )
            raise error
        return _try_to_stack(chunk.with_records(results, is_fresh=True))

    def _apply_to_records(
        self, step: _Step, chunk: Chunk, records: list[Any], positions: Positions
    ) -> tuple[list[Any], bool]:
        """One result per record, `None` for a dropped one; and whether some failed."""
        apply = step.record_function(_rows_of(chunk, positions))
        results: list[Any] = []
        has_failed = False
        for row, record in enumerate(records):
            try:
                results.append(apply(row, record))
            except Exception as error:
                where = self._where(step, chunk, positions, row, record)
                if self._skipped is None:
                    error.add_note(where)
                    raise
                self._skipped.add(where, error)
                results.append(None)
                has_failed = True
        return results, has_failed

    def _where(
        self, step: _Step, chunk: Chunk, positions: Positions, row: int, record: Any
    ) -> str:
        position = int(_rows_of(chunk, positions)[row])
        return (
            f"In {step.entry}, applied to {self.locate(position)}:"
            f" {record_tree.describe(record)}."
        )


class _Step:
    """One entry, with everything resolved that does not depend on the record."""

    def __init__(self, entry: Entry, leaf_seeds: tuple[tuple[int, int], ...]):
        self.entry = entry
        self.is_ours = entry.is_ours
        self._method: Callable[..., Any] = getattr(entry.transform, entry.kind.value)
        has_batch_form = entry.kind in (Kind.MAP, Kind.RANDOM_MAP, Kind.FILTER)
        self._batch_method = batch_form(entry.transform) if has_batch_form else None
        self.on_columns = self._batch_method is not None
        self._seed = record_rngs.op_seed(leaf_seeds)

    def apply_to_columns(self, chunk: Chunk, positions: Positions) -> Chunk:
        assert self._batch_method is not None
        kind = self.entry.kind
        if kind is Kind.MAP:
            columns = self._batch_method(chunk.columns)
        elif kind is Kind.RANDOM_MAP:
            rngs = record_rngs.RecordRngs(self._seed, _rows_of(chunk, positions))
            columns = self._batch_method(chunk.columns, rngs)
        else:
            alive = np.asarray(self._batch_method(chunk.columns), bool)
            return chunk.select(alive.reshape(chunk.size))
        if not self.is_ours:
            _check_size(columns, chunk.size)
        return Chunk(chunk.size, columns, None, chunk.kept, chunk.is_fresh)

    def record_function(self, rows: np.ndarray) -> Callable[[int, Any], Any]:
        """The function of (row, record) that gives the new record."""
        method = self._method
        if self.entry.kind is Kind.RANDOM_MAP:
            rngs = record_rngs.RecordRngs(self._seed, rows)
            return lambda row, record: method(record, rngs[row])
        if self.entry.kind is Kind.MAP_WITH_INDEX:
            return lambda row, record: method(int(rows[row]), record)
        if self.entry.kind is Kind.FILTER:
            return lambda row, record: record if method(record) else None
        return lambda row, record: method(record)


def _rows_of(chunk: Chunk, positions: Positions) -> np.ndarray:
    rows = as_array(positions)
    return rows if chunk.kept is None else rows[chunk.kept]


def _check_size(columns: Any, size: int) -> None:
    if columns is None:
        raise ValueError("It returned None instead of a batch.")
    for path, column in record_tree.leaves_with_paths(columns):
        if np.shape(column)[:1] != (size,):
            raise ValueError(
                f"It got {size} records, but returned the field {path!r} with shape"
                f" {np.shape(column)}; the first dimension must stay."
            )


def _try_to_stack(chunk: Chunk) -> Chunk:
    """Columns if the records can be stacked, else the same records."""
    if chunk.records is None or not chunk.size:
        return chunk
    try:
        columns = stacking.stack(chunk.records)
    except stacking.RecordMismatchError:
        return chunk
    return Chunk(chunk.size, columns, None, chunk.kept, is_fresh=True)
