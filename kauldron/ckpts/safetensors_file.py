"""Reading safetensors files: a JSON header, then the bytes of the arrays.

The format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath

_LARGEST_HEADER = 100_000_000
_LENGTH_BYTES = 8
_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "F8_E4M3": jnp.float8_e4m3fn,
    "F8_E5M2": jnp.float8_e5m2,
}


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file; `np.asarray` reads it.

    Attributes:
      file: The file.
      name: Its name there.
      shape: Its shape.
      dtype: Its dtype.
      offset: Where its bytes begin.
    """

    file: epath.Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with self.file.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.nbytes)
        array = np.frombuffer(data, self.dtype).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)


@dataclasses.dataclass(frozen=True)
class SafetensorsFile:
    """A safetensors file; nothing of it is trusted.

    Attributes:
      path: The file.
    """

    path: epath.Path

    @functools.cached_property
    def arrays(self) -> dict[str, StoredArray]:
        """The arrays by name; their data is not read."""
        size = self.path.stat().length
        with self.path.open("rb") as file:
            header_size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 2 <= header_size <= min(_LARGEST_HEADER, size - _LENGTH_BYTES):
                raise self._error("it does not begin with a header")
            text = file.read(header_size)
        try:
            header = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error(f"its header is no JSON ({error})") from error
        if not isinstance(header, dict):
            raise self._error("its header is no mapping")
        data_start = _LENGTH_BYTES + header_size
        return {
            name: self._array(name, entry, data_start, size)
            for name, entry in header.items()
            if name != "__metadata__"
        }

    def _array(self, name: str, entry: Any, data_start: int, size: int) -> StoredArray:
        try:
            begin, end = (int(offset) for offset in entry["data_offsets"])
            shape = tuple(int(length) for length in entry["shape"])
            dtype_name = entry["dtype"]
        except (TypeError, KeyError, ValueError) as error:
            raise self._error(f"the entry of {name!r} is not valid") from error
        if dtype_name not in _DTYPES:
            raise self._error(f"{name!r} has the unknown dtype {dtype_name!r}")
        dtype = np.dtype(_DTYPES[dtype_name])
        array = StoredArray(self.path, name, shape, dtype, data_start + begin)
        is_inside = 0 <= begin <= end <= size - data_start
        if min(shape, default=0) < 0 or not is_inside or array.nbytes != end - begin:
            raise self._error(f"the data of {name!r} is not where the header says")
        return array

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"{self.path} is no safetensors file: {problem}.")
