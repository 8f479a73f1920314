"""ArrayRecord files that are opened when they are first read."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kauldron.data.py.file_sources import ArrayRecord
from kauldron.data.py.sources import PathLike, paths_of


class LazyArrayRecordDataSource:
    """The bytes of the records of ArrayRecord files, opened when first needed.

    For `kd.data.py.DataSource`; `kd.data.py.ArrayRecord` also decodes the records.

    Args:
      paths: One file or several.
    """

    def __init__(self, paths: PathLike | Sequence[PathLike]):
        self.paths = paths_of(paths)

    @functools.cached_property
    def _records(self) -> Any:
        return ArrayRecord(self.paths, decoder=bytes, shuffle=False).data_source

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> bytes:
        return self._records[index]

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        return self._records.__getitems__(indices)

    def __repr__(self) -> str:
        return f"LazyArrayRecordDataSource({self.paths!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.paths,)
