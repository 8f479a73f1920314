"""Pictures, histograms and texts of a run, from its event files."""

from __future__ import annotations

import dataclasses
import pathlib
import struct
import threading
from typing import Any

from tensorboardX.proto import event_pb2, summary_pb2

IMAGE, HISTOGRAM, TEXT = "image", "histogram", "text"

_HEADER = 12  # the length of a record, and its checksum
_FOOTER = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """Where one value of a summary is.

    Attributes:
      kind: `IMAGE`, `HISTOGRAM` or `TEXT`.
      tag: With the collection in front: `test/summaries/confusion`.
      step: The step.
      path: The event file.
      offset: Where the record with it begins.
      index: Which value of the record it is.
    """

    kind: str
    tag: str
    step: int
    path: pathlib.Path
    offset: int
    index: int


class Media:
    """The summaries in the event files of one workdir, which may still be growing."""

    def __init__(self, workdir: pathlib.Path):
        self._workdir = workdir
        self._lock = threading.Lock()
        self._read: dict[pathlib.Path, int] = {}
        self._items: dict[tuple[str, str], dict[int, Item]] = {}

    def items(self) -> dict[tuple[str, str], dict[int, Item]]:
        """Return the items by kind and tag, then by step."""
        with self._lock:
            for path in sorted(self._workdir.glob("*/events.out.tfevents.*")):
                if not (path.is_symlink() or path.parent.is_symlink()):
                    self._read_on(path)
            return {key: dict(sorted(v.items())) for key, v in self._items.items() if v}

    def load(self, kind: str, tag: str, step: int) -> Any:
        """Return bytes of a picture, a text, or `{"edges", "counts"}` of a histogram.

        Raises:
          LookupError: There is no such item.
        """
        item = self.items()[kind, tag][step]
        with item.path.open("rb") as file:
            file.seek(item.offset)
            (length,) = struct.unpack("<Q", file.read(8))
            file.seek(item.offset + _HEADER)
            event = event_pb2.Event.FromString(file.read(length))
        return _content(kind, event.summary.value[item.index])

    def _read_on(self, path: pathlib.Path) -> None:
        """Note the items of what was written since the last time."""
        try:
            size = path.stat().st_size
            offset = self._read.get(path, 0)
            if size <= offset:
                return
            with path.open("rb") as file:
                while offset + _HEADER <= size:
                    file.seek(offset)
                    (length,) = struct.unpack("<Q", file.read(8))
                    end = offset + _HEADER + length + _FOOTER
                    if end > size:  # not whole yet, or damaged
                        break
                    file.seek(offset + _HEADER)
                    self._note(path, offset, file.read(length))
                    offset = end
        except OSError:  # removed meanwhile, or not readable
            return
        self._read[path] = offset

    def _note(self, path: pathlib.Path, offset: int, data: bytes) -> None:
        try:
            event = event_pb2.Event.FromString(data)
        except Exception:  # a damaged record; protobuf's error differs by version
            return
        collection = path.parent.name
        if event.HasField("session_log"):
            self._drop_from(collection, event.step)
        for index, value in enumerate(event.summary.value):
            kind = _kind(value)
            if kind is not None:
                tag = f"{collection}/{value.tag}"
                item = Item(
                    kind=kind,
                    tag=tag,
                    step=event.step,
                    path=path,
                    offset=offset,
                    index=index,
                )
                self._items.setdefault((kind, tag), {})[event.step] = item

    def _drop_from(self, collection: str, step: int) -> None:
        """Forget later items: a run that resumed from a checkpoint writes them again."""
        for (_, tag), items in self._items.items():
            if tag.startswith(f"{collection}/"):
                for later in [known for known in items if known >= step]:
                    del items[later]


def _kind(value: Any) -> str | None:
    if value.HasField("image"):
        return IMAGE
    if value.HasField("histo"):
        return HISTOGRAM
    if value.HasField("tensor") and value.tensor.string_val:
        return TEXT
    return None


def _content(kind: str, value: summary_pb2.Summary.Value) -> Any:
    if kind == IMAGE:
        return value.image.encoded_image_string
    if kind == TEXT:
        return b"\n".join(value.tensor.string_val).decode("utf-8", "replace")
    histogram = value.histo
    return {
        "edges": [histogram.min, *histogram.bucket_limit],
        "counts": list(histogram.bucket),
    }
