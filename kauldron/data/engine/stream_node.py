"""A stream: what stands at position k, for as many k as one asks for at once.

Streams form a tree. A leaf reads a source; the nodes above reorder positions, apply
transforms, or draw from several children. Positions run on over epochs: position `k`
of a stream of `n` records is record `k % n` of epoch `k // n`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable

import numpy as np

from kauldron.data.engine.chunk import Chunk, Positions, as_array
from kauldron.data.engine.index_shuffle import EpochOrder


class StreamNode(abc.ABC):
    """One stream of records.

    Attributes:
      length: Number of records of one epoch.
      is_sparse: Whether some positions may hold no record (filters).
      leaf_seeds: For each source below, nearest first: its 32 random bits and how many
        steps down it is. Random transforms derive their seed from them.
    """

    length: int
    is_sparse: bool = False
    leaf_seeds: tuple[tuple[int, int], ...] = ()

    @abc.abstractmethod
    def fetch(self, positions: Positions) -> Chunk:
        """The records at these positions. Threads may call it at the same time."""

    @abc.abstractmethod
    def locate(self, position: int) -> str:
        """Which record of which source stands at a position, in words."""

    def filter_names(self) -> list[str]:
        """The entries that may drop records, for messages."""
        return []


def deeper(leaf_seeds: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The leaf seeds seen from one step further up, nearest first."""
    return tuple(sorted(((b, d + 1) for b, d in leaf_seeds), key=lambda leaf: leaf[1]))


class ReorderNode(StreamNode):
    """The records of the parent in another order, or some of them."""

    def __init__(self, parent: StreamNode):
        self.parent = parent
        self.length = parent.length
        self.is_sparse = parent.is_sparse
        self.leaf_seeds = deeper(parent.leaf_seeds)

    @abc.abstractmethod
    def parent_positions(self, positions: Positions) -> Positions:
        """Where in the parent these positions are found."""

    def fetch(self, positions: Positions) -> Chunk:
        return self.parent.fetch(self.parent_positions(positions))

    def locate(self, position: int) -> str:
        parent_positions = self.parent_positions(range(position, position + 1))
        return self.parent.locate(int(parent_positions[0]))

    def filter_names(self) -> list[str]:
        return self.parent.filter_names()


class ShuffleNode(ReorderNode):
    """Each epoch of the parent in an order of its own."""

    def __init__(self, parent: StreamNode, seed: int):
        super().__init__(parent)
        self._order = EpochOrder(self.length, seed)

    def parent_positions(self, positions: Positions) -> Positions:
        if isinstance(positions, range) and positions:
            return self._order.span(positions)
        epochs, indices = np.divmod(as_array(positions), self.length)
        return self._order(epochs, indices) + epochs * self.length


class SliceNode(ReorderNode):
    """The records that `range(parent.length)[slice]` names, in each epoch."""

    def __init__(self, parent: StreamNode, selection: slice):
        super().__init__(parent)
        self._selected = range(parent.length)[selection]
        self.length = len(self._selected)

    def parent_positions(self, positions: Positions) -> Positions:
        epochs, indices = np.divmod(as_array(positions), self.length)
        selected = self._selected.start + indices * self._selected.step
        return selected + epochs * self.parent.length
