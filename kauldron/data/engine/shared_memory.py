"""Messages between a data worker and its parent: small ones in a pipe, arrays beside.

A message is pickled with its arrays left out; those are copied into memory that both
processes have mapped. The memory is a file without a name, so nothing is left behind
when either side is killed.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
from typing import Any, BinaryIO

import numpy as np

from kauldron.data.engine import trees

_HEADER = struct.Struct("<Q")
_ALIGNMENT = 64


def write_frame(stream: BinaryIO, message: bytes) -> None:
    """Write one message as a whole."""
    stream.write(_HEADER.pack(len(message)))
    stream.write(message)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read one message, `None` if the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    message = stream.read(size)
    return message if len(message) == size else None


def open_shared_file() -> int:
    """Return a file descriptor of memory without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kd.data")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class SharedSlots:
    """The worker's side: places in shared memory, each for one message at a time."""

    def __init__(self, fd: int):
        self._fd = fd
        self._end = 0
        self._slots: dict[int, tuple[int, int]] = {}  # slot -> (offset, capacity)
        self._memory: mmap.mmap | None = None

    def dump(self, slot: int, value: Any) -> bytes:
        """Put the arrays of a value into a slot; gives what to send for the rest."""
        buffers: list[pickle.PickleBuffer] = []
        value = trees.map_leaves(_contiguous, value)
        header = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        views = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        offset = self._reserve(slot, sum(_aligned(view.size) for view in views))
        places = []
        for view in views:
            assert self._memory is not None or not view.size
            if view.size:
                self._target(offset, view.size)[:] = view
            places.append((offset, view.size))
            offset += _aligned(view.size)
        return pickle.dumps((header, places))

    def _target(self, offset: int, size: int) -> np.ndarray:
        assert self._memory is not None
        return np.frombuffer(self._memory, np.uint8, count=size, offset=offset)

    def _reserve(self, slot: int, size: int) -> int:
        offset, capacity = self._slots.get(slot, (0, 0))
        if size > capacity:
            # A place of its own at the end, with room for somewhat larger messages.
            offset, capacity = self._end, _aligned(size + size // 4)
            self._slots[slot] = (offset, capacity)
            self._end += capacity
            os.ftruncate(self._fd, self._end)
            self._memory = mmap.mmap(self._fd, self._end)
        return offset


class SharedReader:
    """The parent's side: copies arrays out of the shared memory."""

    def __init__(self, fd: int):
        self._fd = fd
        self._memory: mmap.mmap | None = None

    def load(self, message: bytes) -> Any:
        """Return the value whose `dump` gave the message, in memory of its own."""
        header, places = pickle.loads(message)
        return pickle.loads(header, buffers=[self._copy(*place) for place in places])

    def _copy(self, offset: int, size: int) -> np.ndarray:
        if not size:
            return np.empty(0, np.uint8)
        if self._memory is None or len(self._memory) < offset + size:
            self._memory = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        return np.frombuffer(self._memory, np.uint8, count=size, offset=offset).copy()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _contiguous(leaf: Any) -> Any:
    return (
        np.ascontiguousarray(leaf)
        if isinstance(leaf, np.ndarray) and leaf.ndim
        else leaf
    )
