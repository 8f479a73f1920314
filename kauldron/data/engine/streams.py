"""From the entries of `transforms=` to a stream.

Entries that work on one record at a time become `TransformNode`s; those that change how
many records there are (one to many, many to one) have nodes of their own, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import trees
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.nodes import (
    Chunk,
    Positions,
    SkippedRecords,
    SliceNode,
    StreamNode,
    TransformNode,
    as_array,
    deeper,
)

_ON_EACH_RECORD = (
    Kind.MAP,
    Kind.RANDOM_MAP,
    Kind.FILTER,
    Kind.MAP_WITH_INDEX,
    Kind.CALL,
)


def apply_entries(
    node: StreamNode,
    entries: Sequence[Entry],
    *,
    skipped: SkippedRecords | None = None,
    slices_done: bool = False,
) -> StreamNode:
    """Return the stream after all entries.

    Bad records are left out and noted in `skipped`, if there is one. `slices_done` says
    that the source is already restricted to its `selection`.
    """
    group: list[Entry] = []
    for entry in entries:
        is_done = entry.kind is Kind.SLICE and slices_done
        if entry.kind in _ON_EACH_RECORD or is_done:
            group.append(entry)
            continue
        node = _with_group(node, group, skipped)
        group = []
        if entry.kind is Kind.SLICE:
            node = SliceNode(node, entry.transform.as_slice())
        else:
            slices_done = False
            make_node = FlatMapNode if entry.kind is Kind.FLAT_MAP else BatchNode
            node = make_node(node, entry)
    return _with_group(node, group, skipped)


def selection(length: int, entries: Sequence[Entry]) -> range:
    """Return the records of a source that the slices before any regrouping leave."""
    selected = range(length)
    for entry in entries:
        if entry.kind in (Kind.FLAT_MAP, Kind.BATCH):
            break
        if entry.kind is Kind.SLICE:
            selected = selected[entry.transform.as_slice()]
    return selected


def stack_early(node: StreamNode) -> None:
    """For the stream that batches are made of: columns as soon as possible."""
    if isinstance(node, TransformNode):
        node.stack_early()


def _with_group(
    node: StreamNode, group: Sequence[Entry], skipped: SkippedRecords | None
) -> StreamNode:
    return TransformNode(node, group, skipped=skipped) if group else node


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
            described = trees.describe(record)
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
            return trees.stack(records)
        except trees.RecordMismatchError as error:
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
