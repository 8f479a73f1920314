"""What is in a batch, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kauldron import kontext
from kauldron.inspect.tables import make_table

_COLUMNS = ("Name", "Dtype", "Shape", "Min", "Max", "Mean", "StdDev")


def get_batch_stats(batch: Any) -> Any:
    """Dtype, shape and range of everything in a batch.

    Args:
      batch: A tree of arrays, on the host or on devices.

    Returns:
      A `pandas.DataFrame` (without pandas, a plain table) with a row per array: `Name`
      (its key, `batch.<path>`), `Dtype`, `Shape`, `Min`, `Max`, `Mean`, `StdDev`. What
      is not a number, or empty, has `-`.

    Example:
      >>> stats = get_batch_stats({"x": np.array([[1.0, 3.0]])})
      >>> list(stats["Name"]), list(stats["Mean"])
      (['batch.x'], [2.0])
    """
    flat = kontext.flatten_with_path(batch, prefix="batch")
    rows = [describe_array(name, leaf) for name, leaf in flat.items()]
    return make_table(_COLUMNS, rows)


def describe_array(name: str, leaf: Any) -> dict[str, Any]:
    """The row of one array."""
    array = np.asarray(leaf)
    row = dict.fromkeys(_COLUMNS, "-")
    row |= {"Name": name, "Dtype": str(array.dtype), "Shape": array.shape}
    if array.size and is_number(array):
        values = array.astype(np.float64)
        row |= {
            "Min": float(values.min()),
            "Max": float(values.max()),
            "Mean": float(values.mean()),
            "StdDev": float(values.std()),
        }
    return row


def is_number(array: np.ndarray) -> bool:
    """Whether these are real numbers; also bfloat16 and the small floats."""
    return array.dtype.kind in "biuf" or "float" in array.dtype.name
