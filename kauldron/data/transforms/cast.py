"""Change of dtype."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kauldron.data.transforms.array_family import as_array, is_jax, is_tf
from kauldron.data.transforms.dtypes import DType, as_dtype
from kauldron.data.transforms.element_wise import ElementWiseTransform
from kauldron.data.transforms.lazy_tensorflow import tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast(ElementWiseTransform):
    """Casts fields to another dtype, as `astype` does.

    Attributes:
      key: The field or fields to cast.
      dtype: Anything `np.dtype` takes, also by name (`"float32"`, `"bfloat16"`), a
        scalar type of `jax.numpy`, a TensorFlow dtype.

    Example:
      >>> Cast(key="label", dtype="int32").map({"label": np.int64(3)})
      {'label': array(3, dtype=int32)}
    """

    dtype: DType

    traceable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def map_element(self, element: Any) -> Any:
        return cast(as_array(element), self.dtype)

    map_element_batch = map_element


def cast(array: Any, dtype: np.dtype) -> Any:
    """`array.astype(dtype)` in every array family."""
    if is_tf(array):
        return tf.cast(array, tf.as_dtype(dtype))
    if is_jax(array):
        import jax

        return array.astype(jax.dtypes.canonicalize_dtype(dtype))
    return array.astype(dtype, copy=False)
