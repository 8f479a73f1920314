"""Records from ArrayRecord files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from kauldron.data.py.arrays import PathLike, paths_of
from kauldron.data.py.data_source import DataSourceBase


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
    """Random access to decoded records, read many at a time.

    Args:
      source: Gives bytes, by `__getitems__`.
      decode: From the bytes of a record to the record.
    """

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
