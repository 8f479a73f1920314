"""Streams that draw from several others."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import trees
from kauldron.data.engine.nodes import Chunk, Positions, StreamNode, as_array, deeper


class MixtureNode(StreamNode):
    """Each position is one record of one of the children."""

    def __init__(self, children: Sequence[StreamNode]):
        self.children = tuple(children)
        self.is_sparse = any(child.is_sparse for child in children)
        self.leaf_seeds = deeper(leaf for c in children for leaf in c.leaf_seeds)

    @abc.abstractmethod
    def select(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of the child, and position in that child, of each position."""

    def fetch(self, positions: Positions) -> Chunk:
        positions = as_array(positions)
        which, child_positions = self.select(positions)
        parts = []
        for number in np.unique(which).tolist():
            (rows,) = np.nonzero(which == number)
            chunk = self.children[number].fetch(child_positions[rows])
            parts.append((chunk.of_kept(rows), chunk))
        return _interleave(parts, len(positions))

    def locate(self, position: int) -> str:
        which, child_positions = self.select(np.array([position]))
        return self.children[int(which[0])].locate(int(child_positions[0]))

    def filter_names(self) -> list[str]:
        return [name for child in self.children for name in child.filter_names()]


class WeightedNode(MixtureNode):
    """Children take turns by weight; an epoch ends before one would repeat."""

    def __init__(self, children: Sequence[StreamNode], weights: Sequence[float] | None):
        super().__init__(children)
        self._shares = integer_shares(weights, len(children))
        total = sum(self._shares)
        self.length = int(
            min(c.length / (q / total) for c, q in zip(children, self._shares))
        )

    def select(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        which = np.full(len(positions), -1)
        child_positions = np.zeros(len(positions), np.int64)
        before, after = positions.copy(), positions + 1
        remaining = sum(self._shares)
        for number, share in enumerate(self._shares):
            # How many of the first k items go to the children that come later.
            later_before = before * (remaining - share) // remaining
            later_after = after * (remaining - share) // remaining
            taken = after - later_after
            mine = (before - later_before != taken) & (which < 0)
            which[mine] = number
            child_positions[mine] = taken[mine] - 1
            remaining -= share
            before, after = later_before, later_after
            if not remaining:
                break
        return which, child_positions


def integer_shares(weights: Sequence[float] | None, count: int) -> list[int]:
    """Return weights as whole numbers, to about one percent of the smallest one.

    >>> integer_shares([0.5, 0.2], 2)
    [250, 100]
    """
    if weights is None:
        return [1] * count
    smallest = min(weights)
    return [int(weight * 100 / smallest) for weight in weights]


class ChosenNode(MixtureNode):
    """A table of the user says what stands where."""

    def __init__(self, children: Sequence[StreamNode], selection_map: Any):
        super().__init__(children)
        self._selection_map = selection_map
        self.length = len(selection_map)

    def select(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [self._choose(position) for position in positions.tolist()]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _choose(self, position: int) -> tuple[int, int]:
        try:
            child, child_position = self._selection_map[position]
        except (LookupError, TypeError, ValueError) as error:
            error.add_note(
                f"While asking the selection map for position {position}: it must give"
                " (child, position) for every position from 0 on, also beyond its"
                f" length of {self.length}, because positions run on over epochs."
            )
            raise
        if not 0 <= child < len(self.children):
            raise IndexError(
                f"The selection map gives child {child} at position {position}; there"
                f" are {len(self.children)} children."
            )
        return int(child), int(child_position)


class ConcatenateNode(MixtureNode):
    """The children one after another; an epoch is the sum of their epochs."""

    def __init__(self, children: Sequence[StreamNode]):
        super().__init__(children)
        self._sizes = np.array([child.length for child in children])
        self._stops = np.cumsum(self._sizes)
        self.length = int(self._stops[-1])

    def select(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        epochs, indices = np.divmod(positions, self.length)
        which = np.searchsorted(self._stops, indices, side="right")
        sizes = self._sizes[which]
        return which, indices - self._stops[which] + sizes + epochs * sizes


class ZipNode(StreamNode):
    """A record holds one record of each child, by name."""

    def __init__(self, children: Mapping[str, StreamNode]):
        self.children = dict(children)
        nodes = list(children.values())
        self.length = min(child.length for child in nodes)
        self.is_sparse = any(child.is_sparse for child in nodes)
        self.leaf_seeds = deeper(leaf for child in nodes for leaf in child.leaf_seeds)

    def fetch(self, positions: Positions) -> Chunk:
        chunks = {
            name: child.fetch(self._child_positions(child, as_array(positions)))
            for name, child in self.children.items()
        }
        alive = np.ones(len(positions), bool)
        for chunk in chunks.values():
            if chunk.kept is not None:
                alive &= np.isin(np.arange(len(positions)), chunk.kept)
        if not alive.all():  # a record is whole or absent
            chunks = {
                name: chunk.select(chunk.of_kept(alive))
                for name, chunk in chunks.items()
            }
        kept = None if alive.all() else np.nonzero(alive)[0]
        size = int(alive.sum())
        is_fresh = all(chunk.is_fresh for chunk in chunks.values())
        if all(chunk.records is None for chunk in chunks.values()):
            columns = {name: chunk.columns for name, chunk in chunks.items()}
            return Chunk(size, columns, None, kept, is_fresh)
        rows = zip(*(chunk.as_records() for chunk in chunks.values()))
        records: list[Any] = [dict(zip(chunks, row)) for row in rows]
        return Chunk(size, None, records, kept, is_fresh)

    def _child_positions(self, child: StreamNode, positions: np.ndarray) -> np.ndarray:
        epochs, indices = np.divmod(positions, self.length)
        return indices + epochs * child.length

    def locate(self, position: int) -> str:
        where = [
            f"{name}: {c.locate(int(self._child_positions(c, np.array([position]))[0]))}"
            for name, c in self.children.items()
        ]
        return f"({', '.join(where)})"

    def filter_names(self) -> list[str]:
        return [n for child in self.children.values() for n in child.filter_names()]


def _interleave(parts: list[tuple[np.ndarray, Chunk]], size: int) -> Chunk:
    """Return one chunk of parts that each know which rows they fill."""
    if not parts:
        return Chunk(0, None, [], np.arange(0), is_fresh=True)
    rows = np.concatenate([part_rows for part_rows, _ in parts])
    order = np.argsort(rows, kind="stable")
    kept = None if len(rows) == size else rows[order]
    is_fresh = all(chunk.is_fresh for _, chunk in parts)
    if all(chunk.records is None for _, chunk in parts):
        columns = _interleave_columns([chunk.columns for _, chunk in parts], order)
        if columns is not None:
            return Chunk(len(rows), columns, None, kept, is_fresh)
    records = [record for _, chunk in parts for record in chunk.as_records()]
    records = [records[row] for row in order.tolist()]
    return Chunk(len(rows), None, records, kept, is_fresh)


def _interleave_columns(parts: list[Any], order: np.ndarray) -> Any:
    """Return columns in row order, or `None` where the children do not look alike."""
    dtypes = [
        [(path, c.dtype) for path, c in trees.leaves_with_paths(part)] for part in parts
    ]
    if any(other != dtypes[0] for other in dtypes):
        return None
    try:
        columns = trees.concatenate(parts)
    except trees.RecordMismatchError:
        return None
    return trees.take_rows(columns, order)
