"""Noticing that the files of a checkpoint changed on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator

from etils import epath

_FILENAME = "checksums.json"
_PIECE_BYTES = 1 << 24


def write(folder: epath.Path) -> None:
    """Note the checksum of every file of a checkpoint, beside them."""
    noted = {name: _crc(path) for name, path in _files(folder)}
    temporary = folder / f".{_FILENAME}.tmp"
    temporary.write_text(json.dumps({"crc32c": noted}))
    temporary.rename(folder / _FILENAME)


def check(folder: epath.Path) -> None:
    """Raise `OSError` if a file is not what it was; no matter if none was noted."""
    path = folder / _FILENAME
    if not path.exists():
        return
    try:
        noted = json.loads(path.read_text())["crc32c"]
    except (ValueError, KeyError) as error:
        raise OSError(f"{path} is damaged: {error!r}.") from error
    found = {name: _crc(path) for name, path in _files(folder)}
    changed = [name for name in noted if found.get(name) != noted[name]]
    if changed:
        raise OSError(
            f"{folder} is damaged: these files changed after they were written: "
            f"{', '.join(changed)}."
        )


def _files(folder: epath.Path, name: str = "") -> Iterator[tuple[str, epath.Path]]:
    """Names relative to the folder, and paths."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files(path, f"{name}{path.name}/")
        elif _FILENAME not in path.name:
            yield f"{name}{path.name}", path


def _crc(path: epath.Path) -> int:
    import crc32c

    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            crc = crc32c.crc32c(piece, crc)
    return crc
