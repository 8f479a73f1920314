"""Reading the dtype arguments of transforms."""

from __future__ import annotations

import difflib
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

DType: TypeAlias = Any  # what np.dtype takes, jnp.bfloat16, "bfloat16", tf.float32


def as_dtype(dtype: DType, *, argument: str = "dtype") -> np.dtype:
    """`dtype` as a NumPy dtype.

    Args:
      dtype: Anything `np.dtype` takes, the name of a small float such as `"bfloat16"`,
        a scalar type of `jax.numpy`, or a TensorFlow dtype.
      argument: How the error message calls it.

    Raises:
      TypeError: It names no dtype of numbers.

    Example:
      >>> as_dtype("bfloat16").itemsize
      2
      >>> as_dtype("flaot32")
      Traceback (most recent call last):
      TypeError: dtype='flaot32' is not a dtype. Did you mean 'float32'?
    """
    if dtype is None:
        raise TypeError(f"{argument} must be given, such as 'float32'; got None.")
    try:
        result = np.dtype(_numpy_spelling(dtype))
    except TypeError as error:
        hint = _nearest(dtype)
        raise TypeError(f"{argument}={dtype!r} is not a dtype.{hint}") from error
    if result.kind in "OUST" or result.names:
        raise TypeError(f"{argument}={dtype!r} is not a dtype of numbers.")
    return result


def _numpy_spelling(dtype: DType) -> Any:
    if hasattr(dtype, "as_numpy_dtype"):  # TensorFlow
        return dtype.as_numpy_dtype
    if isinstance(dtype, str) and dtype not in np.sctypeDict:
        return getattr(ml_dtypes, dtype, dtype)
    return dtype


def _nearest(dtype: DType) -> str:
    names = [name for name in np.sctypeDict if isinstance(name, str)]
    close = difflib.get_close_matches(str(dtype), [*names, "bfloat16"], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
