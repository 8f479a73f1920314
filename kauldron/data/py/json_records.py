"""Records from JSON files."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
from collections.abc import Sequence
from typing import Any

from kauldron.data.py.arrays import PathLike, paths_of
from kauldron.data.py.data_source import DataSourceBase

_GZIP_MAGIC = b"\x1f\x8b"


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
