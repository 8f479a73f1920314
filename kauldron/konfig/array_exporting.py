"""Arrays and dtypes as data; neither numpy nor jax is imported for it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from kauldron.konfig.node import QUALNAME_KEY

_WARN_BYTES = 1_000_000


def export_array(obj: Any, place: str) -> dict[str, Any] | None:
    """The export of an array or dtype; `None` if it is none.

    Args:
      obj: Any object.
      place: Its path, for messages.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "generic"):
        return None  # then there are no arrays either
    if isinstance(obj, numpy.dtype):
        return {QUALNAME_KEY: "numpy:dtype", "0": _dtype_name(obj)}
    if isinstance(obj, (numpy.ndarray, numpy.generic)):
        return _array_call("numpy", numpy.asarray(obj), place)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(obj, getattr(jax, "Array", ())):
        return _jax_array_call(obj, numpy, jax, place)
    return None


def _jax_array_call(obj: Any, numpy: Any, jax: Any, place: str) -> dict[str, Any]:
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.prng_key):
        raise NotImplementedError(f"{place} is a random key, which cannot be exported.")
    return _array_call("jax.numpy", numpy.asarray(obj), place)


def _array_call(module: str, array: Any, place: str) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise NotImplementedError(
            f"{place} is an array of Python objects, which cannot be exported."
        )
    if array.nbytes > _WARN_BYTES:
        warnings.warn(
            f"{place} is an array of {array.nbytes / 1e6:.1f} MB: exported as text it "
            "makes a large config.",
            stacklevel=2,
        )
    dtype = _dtype_name(array.dtype)
    if array.size == 0:  # nested lists would forget the shape
        shape = list(array.shape)
        return {QUALNAME_KEY: f"{module}:zeros", "0": shape, "dtype": dtype}
    values = _listed(array)
    return {QUALNAME_KEY: f"{module}:asarray", "0": values, "dtype": dtype}


def _listed(array: Any) -> Any:
    """Nested lists of what JSON can hold."""
    if array.dtype.kind == "c":
        return _map_leaves(_complex_call, array.tolist())
    if array.dtype.kind in "Mm":  # dates and durations, as texts and counts
        if array.dtype.kind == "M":
            return array.astype(str).tolist()
        return array.astype("int64").tolist()
    if array.dtype.kind == "S":
        return _map_leaves(_bytes_call, array.tolist())
    return array.tolist()


def _map_leaves(fn: Any, values: Any) -> Any:
    if isinstance(values, list):
        return [_map_leaves(fn, value) for value in values]
    return fn(values)


def _complex_call(value: complex) -> dict[str, Any]:
    return {QUALNAME_KEY: "builtins:complex", "0": value.real, "1": value.imag}


def _bytes_call(value: bytes) -> dict[str, Any]:
    return {QUALNAME_KEY: "builtins:bytes.fromhex", "0": value.hex()}


def _dtype_name(dtype: Any) -> str:
    """`float32`, `bfloat16`; texts, dates and records by their numpy code."""
    if dtype.names is not None:
        raise NotImplementedError(f"The record type {dtype} cannot be exported.")
    return dtype.str if dtype.kind in "USMm" else dtype.name
