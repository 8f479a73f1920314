"""Records from files: numpy archives, IDX, JSON, folders of images, ArrayRecord."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from kauldron.data.engine.costs import num_usable_cores
from kauldron.data.in_memory import ColumnSource
from kauldron.data.py.sources import ColumnPipeline, DataSourceBase, PathLike, paths_of
from kauldron.data.transforms import pillow_images
from kauldron.errors import ReadableKeyError

_GZIP_MAGIC = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True, eq=False)
class Npz(ColumnPipeline):
    """Columns of an `.npz` archive, or of a folder of `.npy` files.

    Attributes:
      path: The archive or the folder.
      keys: Which columns; by default all.
      mmap: Whether the files of a folder stay on disk and are read when needed, rather
        than loaded at once.
      shuffle: Whether each epoch has an order of its own.
    """

    path: PathLike = dataclasses.field(kw_only=False)
    keys: Sequence[str] | None = dataclasses.field(default=None, kw_only=True)
    mmap: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", paths_of(self.path))
        if self.keys is not None:
            keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
            object.__setattr__(self, "keys", keys)

    @functools.cached_property
    def data_source(self) -> ColumnSource:  # pyright: ignore
        columns = self._read_folder() if os.path.isdir(self.path) else self._read_file()
        return ColumnSource(columns, name=self._name)

    @property
    def _name(self) -> str:
        return f"Npz({str(self.path)!r})"

    def _read_file(self) -> dict[str, np.ndarray]:
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{self._name}: there is no such file or folder.")
        if not zipfile.is_zipfile(self.path):
            raise ValueError(f"{self._name} is not an .npz archive.")
        if self.mmap:
            raise ValueError(
                f"{self._name}: an archive cannot be memory-mapped. Unpack it, and give"
                " the folder of .npy files."
            )
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                names = self._chosen(archive.files)
                return {name: archive[name] for name in names}
        except (ValueError, EOFError, zipfile.BadZipFile, OSError) as error:
            error.add_note(f"While reading {self._name}.")
            raise

    def _read_folder(self) -> dict[str, np.ndarray]:
        files = {
            name.removesuffix(".npy"): os.path.join(self.path, name)
            for name in sorted(os.listdir(self.path))
            if name.endswith(".npy")
        }
        if not files:
            raise ValueError(f"{self._name} is a folder without .npy files.")
        mode: Any = "r" if self.mmap else None
        columns = {}
        for name in self._chosen(list(files)):
            try:
                columns[name] = np.load(files[name], mmap_mode=mode, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(
                    f"{files[name]} is not a .npy file of numbers: {error}"
                ) from error
        return columns

    def _chosen(self, available: Sequence[str]) -> Sequence[str]:
        if self.keys is None:
            return available
        missing = [key for key in self.keys if key not in available]
        if missing:
            raise ReadableKeyError(
                f"{self._name} has no {missing}; it has {sorted(available)}."
            )
        return self.keys


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
    """Return the array in an IDX file."""
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
    # Read in pieces: a header may promise more than there is, or than memory holds.
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


@dataclasses.dataclass(frozen=True, eq=False)
class Json(DataSourceBase):
    """Records of a JSON file that holds a list, or of a file with one JSON per line.

    The file is read once, when data is first needed, and kept in memory. Compressed
    files (gzip) are recognised by their content, lines by the name: `.jsonl`.

    Attributes:
      path: The file.
      shuffle: Whether each epoch has an order of its own.
    """

    path: PathLike = dataclasses.field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", paths_of(self.path))

    @functools.cached_property
    def data_source(self) -> Sequence[Any]:  # pyright: ignore
        with open(self.path, "rb") as file:
            content = file.read()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        name = str(self.path).removesuffix(".gz")
        if name.endswith((".jsonl", ".ndjson")):
            return _parse_lines(content, self.path)
        return _parse_list(content, self.path)

    @property
    def _name(self) -> str:
        return f"Json({str(self.path)!r})"


def _parse_list(content: bytes, path: PathLike) -> Sequence[Any]:
    try:
        records = json.loads(content)
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON: {error}. (Name files with one JSON per line .jsonl.)"
        ) from error
    if not isinstance(records, list):
        raise ValueError(
            f"{path} holds a JSON {type(records).__name__}; expected a list of records."
        )
    return records


def _parse_lines(content: bytes, path: PathLike) -> Sequence[Any]:
    records = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
    return records


_EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFolder(DataSourceBase):
    """Images `root/<class>/<file>`, classes and files in sorted order.

    A record is `{"image": uint8[h, w, c], "label": int, "path": str}`. Images are
    decoded by Pillow; where the first transform is a crop, as part of it.

    Attributes:
      root: The folder of class folders.
      classes: Which classes, in the order of their labels; by default all folders.
      extensions: Which files count as images, in any case.
      mode: "RGB", "L" (one channel), "RGBA", or another mode of Pillow.
      shuffle: Whether each epoch has an order of its own.
    """

    root: PathLike = dataclasses.field(kw_only=False)
    classes: Sequence[str] | None = dataclasses.field(default=None, kw_only=True)
    extensions: Sequence[str] = dataclasses.field(default=_EXTENSIONS, kw_only=True)
    mode: str = dataclasses.field(default="RGB", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "root", paths_of(self.root))
        object.__setattr__(self, "extensions", tuple(self.extensions))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))

    @functools.cached_property
    def data_source(self) -> ImageFiles:  # pyright: ignore
        return ImageFiles(self._list_files(), self.mode)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by label."""
        if self.classes is not None:
            return tuple(self.classes)
        if not os.path.isdir(self.root):
            raise FileNotFoundError(f"{self._name}: there is no such folder.")
        with os.scandir(self.root) as entries:
            found = [e.name for e in entries if e.is_dir() and e.name[0] != "."]
        return tuple(sorted(found))

    @property
    def _name(self) -> str:
        return f"ImageFolder({str(self.root)!r})"

    @property
    def _num_threads(self) -> int:
        if self.read_options is not None:
            return super()._num_threads
        # Pillow works outside of Python's lock: what is read ahead is decoded at once.
        return min(self.prefetch_batches, num_usable_cores())

    def _list_files(self) -> list[tuple[str, int]]:
        endings = tuple(extension.lower() for extension in self.extensions)
        files, others = [], []
        for label, name in enumerate(self.class_names):
            folder = os.path.join(self.root, name)
            if not os.path.isdir(folder):
                there = sorted(os.listdir(self.root))
                raise FileNotFoundError(
                    f"{self._name}: no folder for the class {name!r}; there are {there}."
                )
            for file in sorted(os.listdir(folder)):
                path = os.path.join(folder, file)
                (files if file.lower().endswith(endings) else others).append(
                    (path, label)
                )
        if not files:
            raise ValueError(
                f"{self._name} holds no image <class>/<file> that ends in"
                f" {', '.join(endings)}. Classes: {list(self.class_names)}; other files:"
                f" {[path for path, _ in others[:5]]}."
            )
        return files


class ImageFiles:
    """Random access to images, of which paths and labels are given."""

    gives_fresh_records = True

    def __init__(self, files: Sequence[tuple[str, int]], mode: str):
        # One decoder, whatever else is installed: others round their grey values and
        # JPEGs differently. Imported here, before any background thread reads.
        pillow_images.pillow("kd.data.py.ImageFolder")
        self._files = files
        self._mode = mode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return pillow_images.decoded_record(self.encoded_record(index))

    def encoded_record(self, index: int) -> dict[str, Any]:
        """Return a record whose image is not decoded yet."""
        path, label = self._files[index]
        with open(path, "rb") as file:
            content = file.read()
        image = pillow_images.EncodedImage(content, mode=self._mode, name=path)
        return {"image": image, "label": label, "path": path}


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayRecord(DataSourceBase):
    """Records of ArrayRecord files, which are opened when data is first needed.

    Attributes:
      paths: One file or several.
      decoder: From the bytes of a record to the record.
      shuffle: Whether each epoch has an order of its own.
    """

    paths: PathLike | Sequence[PathLike] = dataclasses.field(kw_only=False)
    decoder: Callable[[bytes], Any] = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "paths", paths_of(self.paths))

    @functools.cached_property
    def data_source(self) -> DecodedRecords:  # pyright: ignore
        from array_record.python import array_record_data_source

        paths = [self.paths] if isinstance(self.paths, str) else list(self.paths)  # pyright: ignore
        try:
            files = array_record_data_source.ArrayRecordDataSource(paths)
            len(files)
        except Exception as error:
            raise ValueError(f"{self._name} cannot be opened: {error}") from error
        return DecodedRecords(files, self.decoder)

    @property
    def _name(self) -> str:
        return f"ArrayRecord({self.paths!r})"


class DecodedRecords:
    """Random access to decoded records, read many at a time by `__getitems__`."""

    gives_fresh_records = True

    def __init__(self, source: Any, decode: Callable[[bytes], Any]):
        self._source = source
        self._decode = decode

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        return self._decode(self._source[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self._decode(record) for record in self._source.__getitems__(indices)]
