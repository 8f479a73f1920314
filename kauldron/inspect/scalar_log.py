"""The numbers that a run has written, read while it keeps writing.

A log is never read further than a question needs: the last values come from the end of
the file, a curve of a long log from lines spread evenly over it, and the best values from
reading on where the last reading ended.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import mmap
import os
import pathlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

FILENAME = "scalars.jsonl"

_TAIL_BYTES = 1 << 13
_CHUNK_BYTES = 1 << 22
_SHORTEST_LINE = 100  # of a log with more than one metric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One curve: what was written when. All three have the same length.

    Attributes:
      steps: The steps.
      times: In seconds since 1970.
      values: The values; NaN where the run wrote one.
    """

    steps: np.ndarray
    times: np.ndarray
    values: np.ndarray

    def __getitem__(self, index: slice | np.ndarray) -> Series:
        """Return a part of the points."""
        return Series(
            steps=self.steps[index], times=self.times[index], values=self.values[index]
        )

    def thinned(self, count: int) -> Series:
        """Return about `count` points that look the same: the extremes of each stretch."""
        size = len(self.values)
        if size <= count or count < 4:
            return self
        edges = np.linspace(0, size, count // 2 + 1).astype(int)
        kept = {0, size - 1}
        for start, stop in itertools.pairwise(edges):
            part = self.values[start:stop]
            if len(part) and not np.isnan(part).all():
                kept |= {
                    start + int(np.nanargmin(part)),
                    start + int(np.nanargmax(part)),
                }
        return self[np.array(sorted(kept))]


@dataclasses.dataclass
class Extremes:
    """The smallest and largest value of a metric so far, and their steps."""

    low: float = math.inf
    low_step: int | None = None
    high: float = -math.inf
    high_step: int | None = None

    def add(self, step: int, value: float) -> None:
        if value < self.low:
            self.low, self.low_step = value, step
        if value > self.high:
            self.high, self.high_step = value, step


class ScalarLog:
    """A `scalars.jsonl`, which may grow, be replaced or hold damaged lines."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._extremes: dict[str, Extremes] = {}
        self._cached: dict[Any, Any] = {}
        self._cached_at: tuple[int, int] | None = None

    @property
    def version(self) -> tuple[int, int]:
        """What changes with the file: its time and size."""
        return file_version(self.path)

    def last(self) -> dict[str, tuple[int, float]]:
        """Return the newest step and value of each metric near the end of the file."""
        return self._remember("last", self._read_last)

    def extremes(self) -> dict[str, Extremes]:
        """Return the smallest and largest finite value of each metric."""
        with self._lock:
            try:
                self._read_on()
            except OSError:  # removed meanwhile, or not readable
                self._start_again(None)
            return {name: dataclasses.replace(e) for name, e in self._extremes.items()}

    def series(self, names: Iterable[str]) -> dict[str, Series]:
        """Return all points of some metrics."""
        names = frozenset(names)
        return self._remember(("series", names), lambda: collect(self._all(), names))

    def sampled(
        self,
        names: Iterable[str],
        count: int,
        *,
        first: float = -math.inf,
        last: float = math.inf,
        by: str = "step",
    ) -> dict[str, Series]:
        """Return the points of about `count` lines that are spread over the file.

        Args:
          names: Of the metrics.
          count: How many lines to read.
          first: Start of the stretch to look at.
          last: End of it.
          by: What both are: `"step"` or `"time"`.

        Returns:
          The points by name. Some lie outside of the stretch, so that lines reach its
          ends.
        """
        key = ("sample", count, first, last, by)
        entries = self._remember(key, lambda: self._sample(count, first, last, by))
        return collect(entries, frozenset(names))

    #
    # Reading
    #

    def _remember(self, key: Any, read: Any) -> Any:
        """Return what was read before, unless the file has changed since."""
        with self._lock:
            version = self.version
            if version != self._cached_at:
                self._cached, self._cached_at = {}, version
            if key not in self._cached:
                if len(self._cached) > 8:
                    self._cached.clear()
                self._cached[key] = read()
            return self._cached[key]

    def _all(self) -> Iterator[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                for data in _whole_lines(file):
                    yield from parse_lines(data)
        except OSError:
            return

    def _read_last(self) -> dict[str, tuple[int, float]]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                data, start, length = b"", size, _TAIL_BYTES
                while not data and start:  # else a line is longer than that
                    start = max(0, size - length)
                    file.seek(start)
                    data = file.read()
                    data = data[data.find(b"\n") + 1 if start else 0 :]
                    data = data[: data.rfind(b"\n") + 1]
                    length *= 8
        except OSError:
            return {}
        found: dict[str, tuple[int, float]] = {}
        for entry in parse_lines(data):
            for name, value in entry["values"].items():
                found[name] = (entry["step"], as_number(value))
        return found

    def _read_on(self) -> None:
        """Take in what was written since the last time."""
        stat = self.path.stat()
        identity = (stat.st_dev, stat.st_ino)
        if identity != self._identity or stat.st_size < self._offset:
            self._start_again(identity)
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for data in _whole_lines(file):
                self._offset += len(data)
                for entry in parse_lines(data):
                    for name, value in entry["values"].items():
                        extremes = self._extremes.setdefault(name, Extremes())
                        extremes.add(entry["step"], as_number(value))

    def _start_again(self, identity: tuple[int, int] | None) -> None:
        self._identity, self._offset, self._extremes = identity, 0, {}

    def _sample(
        self, count: int, first: float, last: float, by: str
    ) -> list[dict[str, Any]]:
        try:
            with (
                self.path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                return list(parse_lines(_spread(data, count, first, last, by)))
        except (OSError, ValueError):  # not there, or empty
            return []


def file_version(path: pathlib.Path) -> tuple[int, int]:
    """Return time and size of a file, zeros if it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a file in chunks, up to a last line that is being written."""
    while data := file.read(_CHUNK_BYTES):
        data += file.readline()
        end = data.rfind(b"\n") + 1
        if not end:
            return
        yield data[:end]
        file.seek(end - len(data), os.SEEK_CUR)


def _spread(data: mmap.mmap, count: int, first: float, last: float, by: str) -> bytes:
    """Return about `count` lines, evenly spaced, without touching all of the file."""
    size = data.rfind(b"\n") + 1
    start = 0 if first == -math.inf else _bisect(data, size, first, by)
    stop = size if last == math.inf else _bisect(data, size, last, by)
    start = data.rfind(b"\n", 0, max(0, start - 1)) + 1  # one line more
    stop = data.find(b"\n", stop, size) + 1 or size
    if stop - start <= _SHORTEST_LINE * count:
        return data[start:stop]
    lines: list[bytes] = []
    position = -1
    for target in np.linspace(start, stop - 2, count).astype(int).tolist():
        begin = data.rfind(b"\n", 0, target) + 1
        if begin > position:
            end = data.find(b"\n", begin)
            lines.append(data[begin : end + 1])
            position = begin
    return b"".join(lines)


def _bisect(data: mmap.mmap, size: int, wanted: float, by: str) -> int:
    """Return where the first line of at least `wanted` begins: steps only grow."""
    low, high = 0, size
    while low < high:
        begin = data.rfind(b"\n", 0, (low + high) // 2) + 1
        end = data.find(b"\n", begin, size) + 1
        entry = next(parse_lines(data[begin:end]), None)
        if entry is not None and entry[by] < wanted:
            low = end
        else:
            high = begin
    return low


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Return the entries of whole lines, without those that cannot be read."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        entries = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        entries = list(map(_parse_line, lines))
    return (entry for entry in entries if _is_entry(entry))


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("step"), int)
        and isinstance(entry.get("time"), int | float)
        and isinstance(entry.get("values"), dict)
    )


def as_number(value: Any) -> float:
    """Return a value of a log; NaN and infinities are texts there.

    Example:
      >>> as_number(0.5), as_number("-inf"), as_number("what?")
      (0.5, -inf, nan)
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def collect(
    entries: Iterable[dict[str, Any]], names: frozenset[str]
) -> dict[str, Series]:
    """Return the curves of some metrics from the entries of a log."""
    found: dict[str, tuple[list[int], list[float], list[float]]] = {}
    for entry in entries:
        values = entry["values"]
        for name in names:
            if name in values:
                steps, times, numbers = found.setdefault(name, ([], [], []))
                steps.append(entry["step"])
                times.append(entry["time"])
                numbers.append(as_number(values[name]))
    return {
        name: Series(
            steps=np.array(steps, np.int64),
            times=np.array(times, np.float64),
            values=np.array(numbers, np.float64),
        )
        for name, (steps, times, numbers) in found.items()
    }
