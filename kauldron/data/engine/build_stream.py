"""From the entries of `transforms=` to nodes of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.regroup_nodes import BatchNode, FlatMapNode
from kauldron.data.engine.skipped_records import SkippedRecords
from kauldron.data.engine.stream_node import SliceNode, StreamNode
from kauldron.data.engine.transform_node import TransformNode, works_on_each_record


def apply_entries(
    node: StreamNode,
    entries: Sequence[Entry],
    *,
    skipped: SkippedRecords | None = None,
    slices_done: bool = False,
) -> StreamNode:
    """The stream after all entries.

    Args:
      node: The stream before them.
      entries: What to apply.
      skipped: Where bad records are noted, if they may be left out.
      slices_done: Whether the source is already restricted to its `selection`.
    """
    group: list[Entry] = []
    for entry in entries:
        is_done = entry.kind is Kind.SLICE and slices_done
        if works_on_each_record(entry) or is_done:
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
    """Which records of a source are used: what the slices before any regrouping leave.

    Args:
      length: Number of records in the source.
      entries: The transforms of the source.
    """
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
