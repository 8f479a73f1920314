"""The default writer: event files, `scalars.jsonl`, log lines."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import io
import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np
from etils import epath

from kauldron import status
from kauldron.files import write_atomically
from kauldron.writers.event_file import EventFile
from kauldron.writers.texts import value_line
from kauldron.writers.writer import Arrays, Routed, WriterBase

_FLUSH_SECONDS = 10.0
_DEFAULT_BUCKETS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class KDMetricWriter(WriterBase):
    """Writes `<workdir>/<collection>/`: TensorBoard files and `scalars.jsonl`.

    Files are written by a background thread, and only by the lead host. Numbers are
    also logged, one line per write; of the times measured, only the speed.

    Attributes:
      add_artifacts: Accepted for older configs; has no effect.
    """

    add_artifacts: bool = True

    def write_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            if value is None or isinstance(value, str) or np.size(value) != 1:
                what = f"of shape {np.shape(value)}" if np.ndim(value) else repr(value)
                raise TypeError(
                    f"write_scalars takes numbers, but {name!r} is {what:.80}. Arrays "
                    "go to `write_summaries`, texts to `write_texts`."
                )
        if set(scalars) != {"num_params"}:  # shown in the first line of a run
            status.log_values(
                value_line(step, self.collection, scalars),
                step=step,
                collection=self.collection,
                values=scalars,
            )
        self._submit("scalars", step, dict(scalars))

    def write_routed(self, step: int, routed: Routed) -> None:
        super().write_routed(step, routed)
        if routed.texts:
            texts = routed.texts
            status.log_values("", step=step, collection=self.collection, values=texts)

    def write_summaries(
        self, step: int, values: Arrays, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._submit("tensors", step, dict(values), metadata)

    def write_images(self, step: int, images: Arrays) -> None:
        self._submit("images", step, dict(images))

    def write_videos(self, step: int, videos: Arrays) -> None:
        self._submit("videos", step, dict(videos))

    def write_audios(self, step: int, audios: Arrays, *, sample_rate: int) -> None:
        self._submit("audios", step, dict(audios), sample_rate)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        self._submit("texts", step, dict(texts))

    def write_histograms(
        self, step: int, arrays: Arrays, *, num_buckets: int | None = None
    ) -> None:
        finite = {name: self._finite(name, array) for name, array in arrays.items()}
        self._submit("histograms", step, finite, num_buckets or _DEFAULT_BUCKETS)

    def write_pointcloud(
        self,
        step: int,
        point_clouds: Arrays,
        *,
        point_colors: Mapping[str, Any] | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> None:
        for name, points in point_clouds.items():
            colors = (point_colors or {}).get(name)
            config = (configs or {}).get(name)
            self._submit("point_cloud", step, name, points, colors, config)

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        lines = [f"- `{name}`: {value}" for name, value in hparams.items()]
        self._submit("texts", 0, {"hparams": "\n".join(lines)})

    def resume(self, *, step: int) -> None:
        if status.is_lead_host:
            self._later(self._files.restart, step)

    def flush(self) -> None:
        if "_files" in vars(self):
            self._files.flush()

    def close(self) -> None:
        files = vars(self).pop("_files", None)  # opened again at the next write
        if files is not None:
            files.close()

    def _submit(self, kind: str, step: int, *args: Any) -> None:
        if status.is_lead_host:
            self._later(self._files.write, kind, step, *args)

    def _later(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args)` in the thread that writes the files."""
        self._files.queue.submit(function, *args)

    @functools.cached_property
    def _files(self) -> _CollectionFiles:
        return _CollectionFiles(self._folder())

    def _finite(self, name: str, array: Any) -> np.ndarray:
        values = np.asarray(array, np.float64).ravel()
        finite = values[np.isfinite(values)]
        if finite.size < values.size:
            self._warn_once(
                f"Histogram {name!r}: {values.size - finite.size} values are not finite "
                "and are left out."
            )
        return finite

    def __getstate__(self) -> dict[str, Any]:
        """Open files stay with the process that opened them."""
        return {k: v for k, v in self.__dict__.items() if k != "_files"}


class _CollectionFiles:
    """The files of one collection, written by one thread."""

    def __init__(self, folder: epath.Path):
        self._folder = folder
        self._events = EventFile(folder)
        self._scalars = ScalarsFile(folder)
        self.queue = BackgroundQueue(f"kauldron-writer-{folder.name}")
        self._last_flush = time.monotonic()
        self._has_written = False

    def flush(self) -> None:
        self.queue.submit(self._flush_files)
        self.queue.wait()

    def close(self) -> None:
        with contextlib.ExitStack() as stack, self._naming_the_folder():
            stack.callback(self._events.close)
            stack.callback(self._scalars.close)
            self.queue.close()

    def restart(self, step: int) -> None:
        with self._naming_the_folder():
            self._scalars.restart_at(step)
            self._events.restart_at(step)

    def write(self, kind: str, step: int, *args: Any) -> None:
        with self._naming_the_folder():
            self._has_written = True
            getattr(self._events, kind)(step, *args)
            if kind == "scalars":
                self._scalars.append(step, *args)
            if time.monotonic() - self._last_flush > _FLUSH_SECONDS:
                self._flush_files()

    def _flush_files(self) -> None:
        self._last_flush = time.monotonic()
        with self._naming_the_folder():
            self._scalars.flush()
            self._events.flush()
            if self._has_written and not self._folder.exists():
                # Writing to open files still succeeds after their folder was removed.
                raise FileNotFoundError(
                    errno.ENOENT, "The folder of the log was removed", str(self._folder)
                )

    @contextlib.contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        """Add the folder to errors, such as that of a full disk, that name no file."""
        try:
            yield
        except OSError as error:
            if error.filename is None:
                error.filename = str(self._folder)
            raise


#
# The numbers of a collection, as lines of JSON
#


SCALARS_FILENAME = "scalars.jsonl"


class ScalarsFile:
    """One JSON object per line: `{"step": i, "time": t, "values": {...}}`."""

    def __init__(self, folder: epath.Path):
        self._path = folder / SCALARS_FILENAME
        self._file: IO[str] | None = None

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line; NaN and infinities become strings."""
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
        lines = [(_parse(line), line) for line in _whole_lines(self._path)]
        kept = [line for entry, line in lines if entry and entry["step"] < step]
        self._set_aside([line for entry, line in lines if entry is None])
        write_atomically(self._path, b"".join(line + b"\n" for line in kept))

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

    def _set_aside(self, lines: list[bytes]) -> None:
        """Keep what cannot be read in another file."""
        if not lines:
            return
        aside = self._path.parent / f"{SCALARS_FILENAME}.unreadable"
        with aside.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        status.log_warning(
            f"{len(lines)} lines of {self._path} cannot be read and are now in {aside}."
        )


def _whole_lines(path: epath.Path) -> list[bytes]:
    lines = path.read_bytes().split(b"\n")
    del lines[-1]  # after the last line break: nothing, or a part of a line
    return [line for line in lines if line.strip()]


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return what a line says; `None` if it cannot be read."""
    try:
        entry = json.loads(line)
        is_right = isinstance(entry["step"], int) and isinstance(entry["values"], dict)
    except (ValueError, KeyError, TypeError):
        return None
    return entry if is_right else None


def read_scalars(folder: epath.PathLike) -> list[dict[str, Any]]:
    """Return the readable lines of `scalars.jsonl` of a collection.

    Args:
      folder: Such as `<workdir>/train`.

    Returns:
      For each line a dict with `step`, `time` and `values`.
    """
    path = epath.Path(folder) / SCALARS_FILENAME
    if not path.exists():
        return []
    entries = [_parse(line) for line in _whole_lines(path)]
    if None in entries:
        count = entries.count(None)
        status.log_warning(f"{count} lines of {path} cannot be read and are left out.")
    return [entry for entry in entries if entry is not None]


def _jsonable(value: float) -> float | str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


#
# Work in a thread
#


class BackgroundQueue:
    """Runs calls one after the other in a thread.

    The queue is bounded: a producer that is too fast waits. What a call raises is
    raised by the next `submit`, `flush` or `close`; calls after it are dropped.
    """

    def __init__(self, name: str, *, size: int = 64):
        self._queue: queue.Queue[tuple[Callable[..., Any], tuple[Any, ...]] | None]
        self._queue = queue.Queue(size)
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args)` later. The arguments must not be changed meanwhile."""
        self._raise_error()
        self._queue.put((function, args))

    def wait(self) -> None:
        """Wait until everything that was submitted is done."""
        self._queue.join()
        self._raise_error()

    def close(self) -> None:
        """Finish what was submitted and end the thread; further calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
            self._thread.join()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self) -> None:
        has_failed = False
        while (item := self._queue.get()) is not None:
            try:
                if not has_failed:
                    item[0](*item[1])
            except BaseException as error:
                self._error = error
                has_failed = True
            finally:
                self._queue.task_done()
        self._queue.task_done()
