"""Arrays from IDX files, the format of MNIST and its relatives."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import math
import os
import struct
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from kauldron.data.column_source import ColumnSource
from kauldron.data.py.arrays import ColumnPipeline, PathLike, paths_of

_GZIP_MAGIC = b"\x1f\x8b"
_DTYPES = {
    0x08: ">u1",
    0x09: ">i1",
    0x0B: ">i2",
    0x0C: ">i4",
    0x0D: ">f4",
    0x0E: ">f8",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Idx(ColumnPipeline):
    """Columns of IDX files, plain or compressed with gzip (whatever their names say).

    Attributes:
      files: From the names of the records' fields to files.
      shuffle: Whether each epoch has an order of its own.

    Example:
      ```
      kd.data.py.Idx(
          files={
              "image": "train-images-idx3-ubyte.gz",
              "label": "train-labels-idx1-ubyte.gz",
          },
          shuffle=True,
          batch_size=256,
      )
      ```
    """

    files: Mapping[str, PathLike] = dataclasses.field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.files, Mapping) or not self.files:
            raise TypeError(
                "Idx(files=...) takes a dict from names of fields to files, not"
                f" {self.files!r}."
            )
        object.__setattr__(self, "files", paths_of(self.files))

    @functools.cached_property
    def data_source(self) -> ColumnSource:  # pyright: ignore
        columns = {name: read_idx(path) for name, path in self.files.items()}
        lengths = {self.files[name]: len(c) for name, c in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{path}: {n}" for path, n in lengths.items())
            raise ValueError(f"IDX files hold different numbers of records: {listed}.")
        return ColumnSource(columns, name=self._name)

    @property
    def _name(self) -> str:
        return f"Idx({', '.join(os.path.basename(f) for f in self.files.values())})"


def read_idx(path: PathLike) -> np.ndarray:
    """The array in an IDX file.

    Raises:
      ValueError: The file is not an IDX file, or ends too early; names it.
    """
    with open(path, "rb") as file:
        is_compressed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        try:
            if not is_compressed:
                return _read(file, path)
            with gzip.open(file) as content:
                return _read(content, path)  # pyright: ignore[reportArgumentType]
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is damaged: {error}") from error


def _read(file: BinaryIO, path: PathLike) -> np.ndarray:
    header = file.read(4)
    if len(header) < 4 or header[:2] != b"\0\0" or header[2] not in _DTYPES:
        raise ValueError(
            f"{path} is not an IDX file: it starts with {header!r}, not with two zero"
            " bytes, a type code and a number of dimensions."
        )
    dtype, ndim = np.dtype(_DTYPES[header[2]]), header[3]
    sizes = file.read(4 * ndim)
    if len(sizes) < 4 * ndim or ndim == 0:
        raise ValueError(f"{path} ends inside its header of {ndim} dimensions.")
    shape = struct.unpack(f">{ndim}I", sizes)
    wanted = math.prod(shape) * dtype.itemsize
    # Read bit by bit: a header may promise more than there is, or than memory holds.
    content = bytearray()
    while len(content) <= wanted and (part := file.read(1 << 24)):
        content += part
    if len(content) != wanted:
        found = "more" if len(content) > wanted else f"only {len(content)}"
        raise ValueError(
            f"{path}: its header says {'x'.join(map(str, shape))} {dtype.name}, that is"
            f" {wanted} bytes, but it has {found}."
        )
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
