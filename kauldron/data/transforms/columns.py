"""Batches as columns: trees of arrays with a leading axis over the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine import stacking
from kauldron.data.transforms import array_family


def num_records(columns: Any) -> int:
    """Length of the leading axis.

    Raises:
      ValueError: There is no array in the tree.
    """
    size = stacking.num_rows(columns)
    if size is None:
        raise ValueError("A batch without a single array has no length.")
    return size


def apply_to_column(
    column: Any,
    map_column: Callable[..., Any],
    map_element: Callable[..., Any],
    rngs: Sequence[Any] | None = None,
) -> Any:
    """Apply a batch method to a column.

    A field that is itself a list or a dict is not one array but several; batch methods
    need not know that: such a field goes through `map_element` record by record.
    """
    if isinstance(column, np.ndarray) or not _is_container(column):
        return map_column(column) if rngs is None else map_column(column, rngs)
    rows = stacking.unstack(column, num_records(column))
    if rngs is None:
        rows = [map_element(row) for row in rows]
    else:
        rows = [map_element(row, rngs[i]) for i, row in enumerate(rows)]
    if array_family.is_jax(rows[0]):
        return array_family.array_module(rows[0]).stack(rows)
    return stacking.stack(rows)


def _is_container(column: Any) -> bool:
    return isinstance(column, list | tuple | Mapping)
