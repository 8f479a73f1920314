"""Arrays from numpy's own files."""

from __future__ import annotations

import dataclasses
import functools
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from kauldron.data.column_source import ColumnSource
from kauldron.data.py.arrays import ColumnPipeline, PathLike, paths_of


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
            raise KeyError(
                f"{self._name} has no {missing}; it has {sorted(available)}."
            )
        return self.keys
