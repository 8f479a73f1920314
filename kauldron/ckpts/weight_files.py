"""Weights from files of other tools: safetensors, and flax's msgpack."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from kauldron.ckpts import structure
from kauldron.ckpts.partial_loader import MappedLoader
from kauldron.ckpts.structure import LeafPath
from kauldron.immutabledict import ImmutableDict

_ALL_TO_PARAMS = ImmutableDict({"params": ""})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SafetensorsLoader(MappedLoader):
    """Loads arrays of a safetensors file into the initial state.

    The names in the file are split at dots: `encoder.dense.kernel` is the leaf `kernel`
    of the sub-tree `encoder.dense`. Only the arrays that are needed are read.

    Attributes:
      path: The file.
      new_to_old: From path in the new state to path in the file.
      separator: What the parts of a name are joined by in the file.
    """

    path: epath.PathLike
    new_to_old: Mapping[str, str] = _ALL_TO_PARAMS
    separator: str = "."

    def _open(self, *, is_continued: bool) -> _FileSource:
        tree: dict[str, Any] = {}
        for name, array in read_safetensors(epath.Path(self.path)).items():
            *parents, last = name.split(self.separator)
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
                if not isinstance(node, dict):
                    raise ValueError(
                        f"{self.path} has an array {name!r} below another array: set "
                        "another `separator`."
                    )
            node[last] = array
        return _FileSource(str(self.path), tree)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MsgpackLoader(MappedLoader):
    """Loads arrays of a file written with `flax.serialization.to_bytes`.

    Attributes:
      path: The file.
      new_to_old: From path in the new state to path in the file. For a file of all
        variables of a model: `{"params": "params"}`.
    """

    path: epath.PathLike
    new_to_old: Mapping[str, str] = _ALL_TO_PARAMS

    def check(self, state: Any = None) -> None:
        epath.Path(self.path).stat()  # to open the file is to read all of it
        if state is not None:
            super().check(state)

    def _open(self, *, is_continued: bool) -> _FileSource:
        return _FileSource(str(self.path), read_msgpack(epath.Path(self.path)))


def read_msgpack(path: epath.Path) -> Any:
    """Return the tree of arrays in a file of flax."""
    from flax import serialization

    data = path.read_bytes()
    try:
        return serialization.msgpack_restore(data)
    except Exception as error:
        raise ValueError(f"{path} is not a msgpack file of flax: {error}") from error


@dataclasses.dataclass(frozen=True)
class _FileSource:
    """A tree of arrays that can be had on the host."""

    name: str
    tree: Any

    def read(self, wanted: Mapping[LeafPath, Any]) -> Mapping[LeafPath, Any]:
        leaves = structure.flatten(self.tree)
        return {
            path: put_like(np.asarray(leaves[path]), like)
            for path, like in wanted.items()
        }


def put_like(array: np.ndarray, like: Any) -> Any:
    """Return the array in the dtype and on the devices of another."""
    if not hasattr(like, "dtype"):
        return array.item()
    array = array.astype(like.dtype)
    sharding = getattr(like, "sharding", None)
    if sharding is None:
        return array
    return jax.make_array_from_callback(
        array.shape, sharding, lambda index: array[index]
    )


#
# The safetensors format
#


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
    """An array in a file, from the byte at `offset` on; `np.asarray` reads it."""

    file: epath.Path
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


def read_safetensors(path: epath.Path) -> dict[str, StoredArray]:
    """Return the arrays of a file by name; their data is not read, and not trusted."""
    size = path.stat().length
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 2 <= header_size <= min(_LARGEST_HEADER, size - _LENGTH_BYTES):
            raise _not_safetensors(path, "it does not begin with a header")
        text = file.read(header_size)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_safetensors(path, f"its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _not_safetensors(path, "its header is not a mapping")
    data_start = _LENGTH_BYTES + header_size
    return {
        name: _stored_array(path, name, entry, data_start, size)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _stored_array(
    path: epath.Path, name: str, entry: Any, data_start: int, size: int
) -> StoredArray:
    try:
        begin, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(length) for length in entry["shape"])
        dtype_name = entry["dtype"]
    except (TypeError, KeyError, ValueError) as error:
        raise _not_safetensors(path, f"the entry of {name!r} is not valid") from error
    if dtype_name not in _DTYPES:
        raise _not_safetensors(path, f"{name!r} has the unknown dtype {dtype_name!r}")
    array = StoredArray(path, shape, np.dtype(_DTYPES[dtype_name]), data_start + begin)
    is_inside = 0 <= begin <= end <= size - data_start
    if min(shape, default=0) < 0 or not is_inside or array.nbytes != end - begin:
        problem = f"the data of {name!r} is not where the header says"
        raise _not_safetensors(path, problem)
    return array


def _not_safetensors(path: epath.Path, problem: str) -> ValueError:
    return ValueError(f"{path} is not a safetensors file: {problem}.")
