"""Transforms that change how many records there are: one to many, many to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import record_tree, stacking
from kauldron.data.engine.chunk import Chunk, Positions, as_array
from kauldron.data.engine.entries import Entry
from kauldron.data.engine.stream_node import StreamNode, deeper


class FlatMapNode(StreamNode):
    """Each record of the parent becomes up to `max_fan_out` records.

    Every parent position has `max_fan_out` positions here; those that are not used hold
    no record.
    """

    is_sparse = True

    def __init__(self, parent: StreamNode, entry: Entry):
        self.parent = parent
        self._entry = entry
        self._fan_out = int(entry.transform.max_fan_out)
        self.length = parent.length * self._fan_out
        self.leaf_seeds = deeper(parent.leaf_seeds)

    def fetch(self, positions: Positions) -> Chunk:
        parents, offsets = np.divmod(as_array(positions), self._fan_out)
        wanted, rows = np.unique(parents, return_inverse=True)
        chunk = self.parent.fetch(wanted)
        kept = np.arange(len(wanted)) if chunk.kept is None else chunk.kept
        splits: dict[int, Sequence[Any]] = {}
        for number, record in zip(kept.tolist(), chunk.own_records()):
            splits[number] = self._split(record, int(wanted[number]))
        records = [
            splits[row][offset] if offset < len(splits.get(row, ())) else None
            for row, offset in zip(rows.tolist(), offsets.tolist())
        ]
        return Chunk(len(records)).with_records(records, is_fresh=True)

    def _split(self, record: Any, parent_position: int) -> Sequence[Any]:
        try:
            parts = list(self._entry.transform.flat_map(record))
            if len(parts) > self._fan_out:
                raise ValueError(
                    f"flat_map gave {len(parts)} records, more than"
                    f" max_fan_out={self._fan_out}."
                )
        except Exception as error:
            where = self.parent.locate(parent_position)
            described = record_tree.describe(record)
            error.add_note(f"In {self._entry}, applied to {where}: {described}.")
            raise
        return parts

    def locate(self, position: int) -> str:
        parent_position, offset = divmod(position, self._fan_out)
        return f"part {offset} of {self.parent.locate(parent_position)}"

    def filter_names(self) -> list[str]:
        return [*self.parent.filter_names(), str(self._entry)]


class BatchNode(StreamNode):
    """Groups of consecutive records of the parent, each stacked into one record."""

    def __init__(self, parent: StreamNode, entry: Entry):
        if parent.is_sparse:
            raise ValueError(
                f"{entry} cannot come after a filter or flat-map: there positions hold"
                " no record, so groups would not be full. Use the batch_size of the"
                " pipeline."
            )
        self.parent = parent
        self._size = int(entry.transform.batch_size)
        self._stack = getattr(entry.transform, "batch_fn", None) or self._stack_records
        whole, rest = divmod(parent.length, self._size)
        is_cut = bool(entry.transform.drop_remainder)
        self.length = whole + (bool(rest) and not is_cut)
        self.leaf_seeds = deeper(parent.leaf_seeds)

    def fetch(self, positions: Positions) -> Chunk:
        spans = [self._parent_span(k) for k in as_array(positions).tolist()]
        wanted = np.concatenate([as_array(span) for span in spans])
        chunk = self.parent.fetch(wanted)
        if chunk.kept is not None:
            raise ValueError("A record of a group was dropped by a transform.")
        records, start = chunk.own_records(), 0
        groups = []
        for span in spans:
            groups.append(self._stack(records[start : start + len(span)]))
            start += len(span)
        return Chunk(len(groups), None, groups, None, is_fresh=True)

    def _stack_records(self, records: Sequence[Any]) -> Any:
        try:
            return stacking.stack(records)
        except stacking.RecordMismatchError as error:
            raise ValueError(error.described("one record", "another")) from None

    def _parent_span(self, position: int) -> range:
        epoch, index = divmod(position, self.length)
        start = index * self._size
        stop = min(start + self._size, self.parent.length)
        offset = epoch * self.parent.length
        return range(start + offset, stop + offset)

    def locate(self, position: int) -> str:
        span = self._parent_span(position)
        first = self.parent.locate(span[0])
        return f"the group of {len(span)} records that starts with {first}"
