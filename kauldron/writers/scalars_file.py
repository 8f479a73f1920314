"""`scalars.jsonl`: results that any program can read."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Mapping
from typing import IO, Any

from etils import epath

from kauldron.utils.whole_files import write_atomically

SCALARS_FILENAME = "scalars.jsonl"


class ScalarsFile:
    """One JSON object per line: `{"step": i, "time": t, "values": {...}}`."""

    def __init__(self, folder: epath.Path):
        self._path = folder / SCALARS_FILENAME
        self._file: IO[str] | None = None

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line; NaN and infinities become texts."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._repair()
            self._file = self._path.open("a")
        file: Any = self._file
        line = {
            "step": step,
            "time": time.time(),
            "values": {name: _jsonable(value) for name, value in values.items()},
        }
        file.write(json.dumps(line) + "\n")

    def restart_at(self, step: int) -> None:
        """Drop lines of `step` and later, which will be written again."""
        self.close()  # what is written later must not go to the file that is replaced
        if not self._path.exists():
            return
        lines = [line for line in self._whole_lines() if _step_of(line) < step]
        write_atomically(self._path, "".join(f"{line}\n" for line in lines))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _repair(self) -> None:
        """Cut off the part of a line that a killed process left."""
        if self._path.exists() and self._ends_within_a_line():
            self.restart_at(2**62)

    def _ends_within_a_line(self) -> bool:
        with self._path.open("rb") as file:
            if file.seek(0, io.SEEK_END) == 0:
                return False
            file.seek(-1, io.SEEK_END)
            return file.read(1) != b"\n"

    def _whole_lines(self) -> list[str]:
        text = self._path.read_text()
        lines = text.split("\n")[:-1]  # after the last line break: nothing, or a part
        return [line for line in lines if line.strip()]


def _step_of(line: str) -> float:
    """Lines that a crash of the machine left unreadable are as good as superseded."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf


def read_scalars(folder: epath.PathLike) -> list[dict[str, Any]]:
    """The lines of a collection's `scalars.jsonl`; a part of a last line is left out.

    Args:
      folder: Such as `<workdir>/train`.

    Returns:
      One `{"step": i, "time": t, "values": {...}}` per line.
    """
    path = epath.Path(folder) / SCALARS_FILENAME
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1] if line]


def _jsonable(value: float) -> float | str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
