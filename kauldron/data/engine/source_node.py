"""The leaf of a stream: reads records from a source, in the fastest way it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kauldron.data.engine import record_tree
from kauldron.data.engine.chunk import Chunk, Positions, as_array
from kauldron.data.engine.skipped_records import SkippedRecords
from kauldron.data.engine.stream_node import StreamNode


@runtime_checkable
class RandomAccessSource(Protocol):
    """What a pipeline can read from.

    Two optional methods are used where they exist, the first one by preference:
    `get_batch(indices: np.ndarray)` gives a tree of arrays with leading dimension
    `len(indices)`; `__getitems__(indices: list[int])` gives a list of records.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class SourceNode(StreamNode):
    """Position `k` is record `selection[k % len(selection)]` of the source."""

    def __init__(
        self,
        source: RandomAccessSource,
        *,
        name: str,
        selection: range,
        seed_bits: int,
        seed_depth: int,
        skipped: SkippedRecords | None = None,
        as_records: bool = False,
    ):
        self.source = source
        self.name = name
        self.length = len(selection)
        self.leaf_seeds = ((seed_bits, seed_depth),)
        self._selection = selection
        self._skipped = skipped
        self._as_records = as_records
        self._read = _best_reader(source, name)
        self._is_fresh = getattr(source, "gives_fresh_records", False)

    def fetch(self, positions: Positions) -> Chunk:
        indices = self.source_indices(positions)
        try:
            chunk = self._read(indices, self._is_fresh)
        except Exception as error:
            return self._read_one_by_one(indices, error)
        if self._as_records and chunk.records is None:
            return chunk.with_records(chunk.as_records(), is_fresh=chunk.is_fresh)
        return chunk

    def source_indices(self, positions: Positions) -> np.ndarray:
        """The numbers of the records in the source."""
        indices = as_array(positions) % self.length
        start, step = self._selection.start, self._selection.step
        return indices if (start, step) == (0, 1) else start + step * indices

    def all_columns(self) -> Any:
        """All selected records of a source of columns, without a copy if possible."""
        if self._selection == range(len(self.source)):
            return self.source.columns  # pyright: ignore[reportAttributeAccessIssue]
        return self.fetch(range(self.length)).columns

    def locate(self, position: int) -> str:
        index = self._selection[position % self.length]
        return f"record {index} of {self.name}"

    def _read_one_by_one(self, indices: np.ndarray, error: Exception) -> Chunk:
        """Find out which record fails; leave it out if that is allowed."""
        records: list[Any] = []
        has_failed = False
        for row, index in enumerate(indices.tolist()):
            try:
                one = self._read(indices[row : row + 1], self._is_fresh)
            except Exception as record_error:
                where = f"While reading record {index} of {self.name}."
                if self._skipped is None:
                    record_error.add_note(where)
                    raise
                self._skipped.add(where, record_error)
                has_failed = True
                records.append(None)
            else:
                records.extend(one.as_records() or [None])
        if not has_failed:
            shown = f"{indices[:8].tolist()}{'...' if len(indices) > 8 else ''}"
            error.add_note(
                f"While reading the records {shown} of {self.name} together; read one"
                " by one, none of them fails."
            )
            raise error
        return Chunk(len(records)).with_records(records, is_fresh=self._is_fresh)


# ----------------------------------------------------------------------------
# Ways of reading
# ----------------------------------------------------------------------------

_Reader = Callable[[np.ndarray, bool], Chunk]


def is_columnar(source: Any) -> bool:
    """Whether the source gives whole batches as arrays."""
    return callable(getattr(source, "get_batch", None))


def _best_reader(source: Any, name: str) -> _Reader:
    if is_columnar(source):
        return lambda indices, is_fresh: _read_columns(source, name, indices)
    if _gives_many(source):
        return lambda indices, is_fresh: _read_many(source, name, indices, is_fresh)

    def read_each(indices: np.ndarray, is_fresh: bool) -> Chunk:
        records = [source[index] for index in indices.tolist()]
        return Chunk(len(records)).with_records(records, is_fresh=is_fresh)

    return read_each


def _gives_many(source: Any) -> bool:
    """Whether the source has a working `__getitems__`.

    Python looks up such methods on the class. `tfds.testing.mock_data()` puts one that
    expects `self` on the object that its sources read from, where it cannot be called.
    """
    parts = (source, getattr(source, "data_source", None))
    on_object = any("__getitems__" in getattr(p, "__dict__", ()) for p in parts)
    return callable(getattr(source, "__getitems__", None)) and not on_object


def _read_columns(source: Any, name: str, indices: np.ndarray) -> Chunk:
    columns = source.get_batch(indices)
    size = len(indices)
    if getattr(source, "gives_fresh_records", False):
        return Chunk(size, columns, None, None, is_fresh=True)
    columns = record_tree.map_leaves(_read_only_if_borrowed, columns)
    is_fresh = True
    for path, column in record_tree.leaves_with_paths(columns):
        is_fresh = is_fresh and column.flags.writeable
        if column.shape[:1] != (size,):
            raise ValueError(
                f"get_batch of {name} was asked for {size} records, but the field"
                f" {path!r} has shape {column.shape}; its first dimension must be"
                f" {size}."
            )
    return Chunk(size, columns, None, None, is_fresh)


def _read_only_if_borrowed(column: Any) -> np.ndarray:
    """Arrays that may be views of the source's own memory cannot be written to."""
    column = np.asarray(column)
    if column.flags.owndata or not column.flags.writeable:
        return column
    column = column.view()
    column.flags.writeable = False
    return column


def _read_many(source: Any, name: str, indices: np.ndarray, is_fresh: bool) -> Chunk:
    records: Sequence[Any] = source.__getitems__(indices.tolist())
    if len(records) != len(indices):
        raise ValueError(
            f"__getitems__ of {name} was asked for {len(indices)} records and gave"
            f" {len(records)}."
        )
    return Chunk(len(records)).with_records(list(records), is_fresh=is_fresh)
