"""Small functions on `jax.ShapeDtypeStruct` and what looks like one."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np


def replace_shape_dtype_struct(
    struct: jax.ShapeDtypeStruct, **changes: Any
) -> jax.ShapeDtypeStruct:
    """A copy with another `shape`, `dtype`, `sharding` or `weak_type`."""
    kwargs = {
        "shape": struct.shape,
        "dtype": struct.dtype,
        "sharding": struct.sharding,
        "weak_type": struct.weak_type,
    }
    return jax.ShapeDtypeStruct(**(kwargs | changes))


def nbytes(array: Any) -> int:
    """Size in bytes of an array, a tracer or a `ShapeDtypeStruct`."""
    shape = np.shape(array)
    dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    return math.prod(shape) * dtype.itemsize
