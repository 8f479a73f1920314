"""Files that are whole or absent, whenever the process ends."""

from __future__ import annotations

import os
import uuid

from etils import epath


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
      path: The file; folders that are missing are created.
      content: A text (written as UTF-8), or bytes.
    """
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    data = content.encode() if isinstance(content, str) else content
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if hasattr(file, "fileno"):
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()
