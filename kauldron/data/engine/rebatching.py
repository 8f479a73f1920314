"""Putting batches together from spans in which records are missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from kauldron.data.engine import stacking
from kauldron.data.engine.batch_job import BatchJob, Piece


class Rebatcher:
    """Takes survivors in stream order and gives batches (or records) of them.

    Args:
      job: Where the batches belong.
      cut_every: Length of an epoch that no batch may span, `None` if batches may.
    """

    def __init__(self, job: BatchJob, cut_every: int | None = None):
        self._job = job
        self._cut_every = cut_every
        self._is_batched = job.plan.batch_size is not None
        self._size = job.plan.local_batch_size if self._is_batched else 1
        self._parts: list[Any] = []
        self._positions = np.zeros(0, np.int64)
        self.finished: list[tuple[Any, int]] = []  # (batch, its last position)

    def add(self, piece: Piece) -> None:
        """Take in what survived of the next span."""
        assert piece.survivors is not None
        positions, value = piece.survivors, piece.value
        if not len(positions):
            return
        if self._cut_every is None:
            self._add(value, positions)
            return
        epochs = positions // self._cut_every
        for epoch in np.unique(epochs):
            rows = np.nonzero(epochs == epoch)[0]
            if len(self._positions) and self._positions[-1] // self._cut_every != epoch:
                self.flush()
            self._add(self._rows(value, slice(rows[0], rows[-1] + 1)), positions[rows])

    def flush(self) -> None:
        """Finish what does not fill a batch: the stream, or an epoch, has ended."""
        if not len(self._positions):
            return
        is_dropped = self._job.plan.remainder == "drop" and self._is_batched
        columns, positions = self._joined(), self._positions
        self._parts, self._positions = [], positions[:0]
        if not is_dropped:
            batch = self._job.finish(columns, len(positions))
            self.finished.append((batch, int(positions[-1])))

    def _add(self, value: Any, positions: np.ndarray) -> None:
        self._parts.append(value)
        self._positions = np.concatenate([self._positions, positions])
        if len(self._positions) < self._size:
            return
        joined, positions = self._joined(), self._positions
        whole = len(positions) // self._size * self._size
        for start in range(0, whole, self._size):
            rows = slice(start, start + self._size)
            batch = self._rows(joined, rows)
            if self._is_batched:
                batch = self._job.finish(batch, self._size)
            else:
                (batch,) = batch
            self.finished.append((batch, int(positions[rows][-1])))
        rest = slice(whole, len(positions))
        self._positions = positions[rest]
        self._parts = [self._rows(joined, rest)] if len(self._positions) else []

    def _rows(self, value: Any, rows: slice) -> Any:
        return stacking.take_rows(value, rows) if self._is_batched else value[rows]

    def _joined(self) -> Any:
        if not self._is_batched:
            return [record for part in self._parts for record in part]
        try:
            return stacking.concatenate(self._parts)
        except stacking.RecordMismatchError as error:
            starts = np.cumsum([0, *(stacking.num_rows(p) or 0 for p in self._parts)])
            names = [
                self._job.node.locate(int(self._positions[starts[part]]))
                for part in error.rows
            ]
            raise ValueError(error.described(*names)) from None
