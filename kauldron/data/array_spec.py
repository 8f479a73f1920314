"""Shape and dtype of an array that is not there."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from kauldron.data.engine import record_tree


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySpec:
    """Shape and dtype, equal to anything that has the same two.

    Attributes:
      shape: Sizes; `None` for one that is not known.
      dtype: numpy dtype. Strings and bytes of any width are `object`.

    Example:
      >>> ArraySpec((2, 3), "float32")
      ArraySpec(shape=(2, 3), dtype='float32')
      >>> ArraySpec((2,), "<U5") == np.array(["a", "b"])
      True
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype

    def __init__(self, shape: Any, dtype: Any):
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", spec_dtype(dtype))

    @classmethod
    def of(cls, array: Any) -> ArraySpec:
        """The spec of anything with a shape and a dtype."""
        return cls(array.shape, array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        shape, dtype = getattr(other, "shape", None), getattr(other, "dtype", None)
        if shape is None or dtype is None:
            return NotImplemented
        try:
            return tuple(shape) == self.shape and spec_dtype(dtype) == self.dtype
        except TypeError:  # a dtype that numpy does not know
            return False

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ArraySpec(shape={self.shape}, dtype={str(self.dtype)!r})"

    def __konfig_export__(self) -> dict[str, Any]:
        return {
            "__qualname__": "kauldron.kd:data.ArraySpec",
            "shape": tuple(self.shape),
            "dtype": str(self.dtype),
        }


def spec_dtype(dtype: Any) -> np.dtype:
    """The dtype as specs have it: text of any width is `object`."""
    if isinstance(dtype, str) and hasattr(ml_dtypes, dtype):  # such as "bfloat16"
        return np.dtype(getattr(ml_dtypes, dtype))
    dtype = np.dtype(dtype)
    return np.dtype(object) if dtype.kind in "USTO" else dtype


def specs_of(batch: Any) -> Any:
    """The tree with arrays replaced by their specs; other leaves stay.

    >>> specs_of({"x": np.zeros((2, 3)), "n": 5})
    {'x': ArraySpec(shape=(2, 3), dtype='float64'), 'n': 5}
    """

    def spec(leaf: Any) -> Any:
        return ArraySpec.of(leaf) if record_tree.has_shape_and_dtype(leaf) else leaf

    return record_tree.map_leaves(spec, batch)
