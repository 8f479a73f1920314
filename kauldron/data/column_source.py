"""Records that are rows of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import record_tree, stacking


class ColumnSource:
    """Random access to the rows of a tree of arrays, whole batches at once.

    The arrays are used as they are: no copy of the data is made. What comes out is.

    Args:
      columns: A tree of arrays, or of lists, that agree in their first dimension.
      name: Of the data, for messages.

    Example:
      >>> source = ColumnSource({"x": np.arange(6) * 10})
      >>> source.get_batch(np.array([1, 3]))
      {'x': array([10, 30])}
    """

    gives_fresh_records = True
    is_in_memory = True

    def __init__(self, columns: Any, *, name: str = "data"):
        self.columns = as_columns(columns, name=name)
        self._length = _common_length(self.columns, name)
        self._readers = _readers(self.columns)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return record_tree.map_leaves(lambda column: column[index].copy(), self.columns)

    def get_batch(self, indices: np.ndarray) -> Any:
        if self._readers is not None:
            return {name: read(indices) for name, read in self._readers}
        return stacking.take_rows(self.columns, indices)


def _readers(columns: Any) -> list[tuple[str, Callable[[np.ndarray], Any]]] | None:
    """How to read each column of a plain dict of arrays in the fastest way.

    `take` is faster than an index, but copies all of an array that has gaps.
    """
    if type(columns) is not dict:
        return None
    if not all(isinstance(column, np.ndarray) for column in columns.values()):
        return None
    return [
        (
            name,
            functools.partial(column.take, axis=0)
            if column.flags.c_contiguous
            else column.__getitem__,
        )
        for name, column in columns.items()
    ]


def as_columns(columns: Any, *, name: str) -> Any:
    """A tree of arrays: lists become arrays, arrays stay, dicts and tuples hold them."""
    if isinstance(columns, Mapping):
        return {
            key: as_columns(value, name=record_tree.join(name, key))
            for key, value in columns.items()
        }
    if isinstance(columns, list) or _is_frozen_list(columns):
        return _as_one_column(columns, name)
    if isinstance(columns, tuple):
        values = [as_columns(v, name=f"{name}[{i}]") for i, v in enumerate(columns)]
        return record_tree.rebuild_sequence(columns, values)
    if columns is None:
        raise ValueError(f"{name} is None; expected an array.")
    column = np.asarray(columns)
    if column.ndim == 0:
        raise ValueError(
            f"{name} is a {type(columns).__name__} without dimensions"
            f" ({columns!r}); expected an array whose first dimension counts records."
        )
    return column


def _is_frozen_list(columns: Any) -> bool:
    """Whether a tuple holds the rows of one column, as a list in a config becomes one.

    Tuples of arrays or lists are several columns.
    """
    return type(columns) is tuple and not any(
        isinstance(row, Mapping | list) or getattr(row, "ndim", 0) for row in columns
    )


def _as_one_column(rows: Sequence[Any], name: str) -> np.ndarray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"The rows of {name} differ in shape: {error}") from None


def _common_length(columns: Any, name: str) -> int:
    lengths = {
        path: len(column) for path, column in record_tree.leaves_with_paths(columns)
    }
    if not lengths:
        raise ValueError(f"{name} holds no array: {columns!r}.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{path or 'data'}: {n}" for path, n in lengths.items())
        raise ValueError(
            f"The arrays of {name} differ in their first dimension, which counts"
            f" records: {listed}."
        )
    return next(iter(lengths.values()))
