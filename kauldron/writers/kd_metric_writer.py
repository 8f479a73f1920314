"""The default writer: event files, `scalars.jsonl`, log lines."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from kauldron.utils import status
from kauldron.writers.background import BackgroundQueue
from kauldron.writers.event_file import EventFile
from kauldron.writers.scalars_file import ScalarsFile
from kauldron.writers.writer import Arrays, WriterBase

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
        texts = [
            f"{key}={value:.6g}"
            for key, value in sorted(scalars.items())
            if not key.startswith("perf_stats/") or key == "perf_stats/steps_per_sec"
        ]
        status.log(f"[{step}] collection={self.collection} {', '.join(texts)}")
        self._submit("scalars", step, dict(scalars))

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
            self._files().submit_restart(step)

    def flush(self) -> None:
        files = vars(self).get("_open_files")
        if files is not None:
            files.flush()

    def close(self) -> None:
        files = vars(self).get("_open_files")
        if files is not None:
            object.__setattr__(self, "_open_files", None)
            files.close()

    def _submit(self, kind: str, step: int, *args: Any) -> None:
        if status.is_lead_host:
            self._files().submit(kind, step, *args)

    def _files(self) -> _CollectionFiles:
        files = vars(self).get("_open_files")
        if files is None:
            files = _CollectionFiles(self._folder())
            object.__setattr__(self, "_open_files", files)
        return files

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
        return {k: v for k, v in self.__dict__.items() if k != "_open_files"}


class _CollectionFiles:
    """The files of one collection, written by one thread."""

    def __init__(self, folder: epath.Path):
        self._folder = folder
        self._events = EventFile(folder)
        self._scalars = ScalarsFile(folder)
        self._queue = BackgroundQueue(f"kauldron-writer-{folder.name}")
        self._last_flush = time.monotonic()
        self._has_written = False

    def submit(self, kind: str, step: int, *args: Any) -> None:
        self._queue.submit(self._write, kind, step, *args)

    def submit_restart(self, step: int) -> None:
        self._queue.submit(self._restart, step)

    def flush(self) -> None:
        self._queue.submit(self._flush_files)
        self._queue.wait()

    def close(self) -> None:
        with contextlib.ExitStack() as stack, self._naming_the_folder():
            stack.callback(self._events.close)
            stack.callback(self._scalars.close)
            self._queue.close()

    def _restart(self, step: int) -> None:
        with self._naming_the_folder():
            self._scalars.restart_at(step)
            self._events.restart_at(step)

    def _write(self, kind: str, step: int, *args: Any) -> None:
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
                # Open files go on working in a folder that is no longer there.
                raise FileNotFoundError(
                    errno.ENOENT, "The folder of the log was removed", str(self._folder)
                )

    @contextlib.contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        """A full disk does not say which file it had no room for."""
        try:
            yield
        except OSError as error:
            if error.filename is None:
                error.filename = str(self._folder)
            raise
