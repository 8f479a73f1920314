"""Some records of a stream on their way to a batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.data.engine import record_tree, stacking


@dataclasses.dataclass(slots=True)
class Chunk:
    """Records in one of two forms: as columns, or as a list.

    Attributes:
      size: Number of records.
      columns: Tree of arrays with leading axis `size`, if `records` is `None`.
      records: The records one by one.
      kept: Which of the requested positions are here, ascending; `None`: all of them.
      is_fresh: Whether nobody else holds the arrays and containers.
    """

    size: int
    columns: Any = None
    records: list[Any] | None = None
    kept: np.ndarray | None = None
    is_fresh: bool = False

    def as_records(self) -> list[Any]:
        """The records one by one, whatever the form."""
        if self.records is not None:
            return self.records
        return stacking.unstack(self.columns, self.size)

    def own_records(self) -> list[Any]:
        """The records one by one, free to be changed by the caller."""
        records = self.as_records()
        return (
            records if self.is_fresh else [record_tree.copy_record(r) for r in records]
        )

    def with_records(self, records: list[Any], *, is_fresh: bool) -> Chunk:
        """The same positions with new records; `None` among them are dropped."""
        if not any(record is None for record in records):
            return Chunk(len(records), None, records, self.kept, is_fresh)
        alive = np.array([record is not None for record in records])
        records = [record for record in records if record is not None]
        return Chunk(len(records), None, records, self._rows(alive), is_fresh)

    def select(self, alive: np.ndarray) -> Chunk:
        """The records where `alive` is true."""
        if alive.all():
            return self
        size, kept = int(alive.sum()), self._rows(alive)
        if self.records is not None:
            records = [r for r, is_alive in zip(self.records, alive) if is_alive]
            return Chunk(size, None, records, kept, self.is_fresh)
        columns = stacking.take_rows(self.columns, alive)
        return Chunk(size, columns, None, kept, is_fresh=True)

    def _rows(self, alive: np.ndarray) -> np.ndarray:
        kept = np.arange(len(alive)) if self.kept is None else self.kept
        return kept[alive]


Positions = range | np.ndarray


def as_array(positions: Positions) -> np.ndarray:
    """Positions as int64 numbers."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step)
    return positions
