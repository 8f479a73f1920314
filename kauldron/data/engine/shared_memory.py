"""What data workers and their parent share: the pipeline, and the arrays of batches.

A value is pickled with its large arrays left out; those stand in memory that both
processes have mapped. The memory is a file without a name, so nothing is left behind
when either side is killed.

The pipeline travels once, to all workers together. Batches come back in slots, a few for
each worker: the parent hands out the arrays where they are, and a slot is used again
once nobody holds an array in it any more.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np

from kauldron.data.engine import trees

_HEADER = struct.Struct("<Q")
_ALIGNMENT = 64  # jax takes arrays as they are, without a copy, from there on

# Smaller arrays travel with the message. In a batch, a label that somebody keeps should
# not keep the images beside it.
_SMALL_IN_PIPELINES = 1 << 12
_SMALL_IN_BATCHES = 1 << 16


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


# ----------------------------------------------------------------------------
# One value for many readers
# ----------------------------------------------------------------------------


class SharedValue:
    """A value in a file, for any number of readers with `load_shared`.

    Args:
      value: What to share. It is pickled at once, and its arrays are written later.
      dumps: `pickle.dumps`, or that of a library that pickles more.

    Attributes:
      fd: The file. Whoever makes the object closes it.
    """

    def __init__(self, value: Any, dumps: Callable[..., bytes]):
        header, self._views = _dump(value, dumps, _SMALL_IN_PIPELINES)
        self._places, self._size = _places(self._views)
        self._index = pickle.dumps((header, self._places))
        self.fd = open_shared_file()

    def write(self) -> None:
        """Fill the file; readers must wait for it."""
        first = _aligned(_HEADER.size + len(self._index))
        os.ftruncate(self.fd, first + self._size)
        with open(self.fd, "wb", buffering=0, closefd=False) as file:
            _write_all(file, _HEADER.pack(len(self._index)) + self._index)
            for (offset, _), view in zip(self._places, self._views):
                file.seek(first + offset)
                _write_all(file, view)


def load_shared(fd: int) -> Any:
    """Return the value of a `SharedValue`; its large arrays stay where they are.

    All readers share their memory. What one of them writes to, it gets a copy of.
    """
    memory = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
    (size,) = _HEADER.unpack_from(memory)
    index_end = _HEADER.size + size
    header, places = pickle.loads(memory[_HEADER.size : index_end])
    content = memory[_aligned(index_end) :]
    buffers = [content[offset : offset + size] for offset, size in places]
    return pickle.loads(header, buffers=buffers)


def _write_all(file: Any, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


# ----------------------------------------------------------------------------
# Slots for batches
# ----------------------------------------------------------------------------


class SharedSlots:
    """The worker's side: places in shared memory, each for one message at a time.

    Args:
      fd: The shared file.
      num_slots: How many places there are.
    """

    def __init__(self, fd: int, num_slots: int):
        self._fd = fd
        self._end = 0
        self._slots = [(0, 0)] * num_slots  # offset, capacity
        self._memory: mmap.mmap | None = None

    def dump(self, slot: int, value: Any) -> bytes:
        """Put the large arrays of a value into a slot; gives what to send."""
        value = trees.map_leaves(_portable, value)
        header, views = _dump(value, pickle.dumps, _SMALL_IN_BATCHES)
        places, size = _places(views)
        start = self._reserve(slot, size)
        for (offset, length), view in zip(places, views):
            assert self._memory is not None
            target = np.frombuffer(self._memory, np.uint8, length, start + offset)
            target[:] = np.frombuffer(view, np.uint8)
        return pickle.dumps((header, start, places, size))

    def _reserve(self, slot: int, size: int) -> int:
        offset, capacity = self._slots[slot]
        if size <= capacity:
            return offset
        # A place of its own at the end, with room for somewhat larger messages.
        capacity = _aligned(size + size // 4, mmap.PAGESIZE)
        growing = range(len(self._slots)) if self._memory is None else [slot]
        for number in growing:
            self._forget(*self._slots[number])
            self._slots[number] = (self._end, capacity)
            self._end += capacity
        os.ftruncate(self._fd, self._end)
        self._memory = mmap.mmap(self._fd, self._end)
        return self._slots[slot][0]

    def _forget(self, offset: int, capacity: int) -> None:
        """Give memory back that has become too small."""
        if capacity and hasattr(mmap, "MADV_REMOVE"):
            assert self._memory is not None
            self._memory.madvise(mmap.MADV_REMOVE, offset, capacity)


class SharedReader:
    """The parent's side: gives out the arrays of the worker's messages.

    Args:
      fd: The shared file.
      num_slots: How many places there are.
      num_held: How many of them may be held by arrays that are still in use. Messages
        that come while these are all held are copied.
    """

    def __init__(self, fd: int, *, num_slots: int, num_held: int):
        self._fd = fd
        self._num_held = num_held
        self._num_awaited = 0
        # Last in, first out: touches as little memory as possible. Any thread may add,
        # at any time; nothing else is changed from outside.
        self._free = list(range(num_slots))
        self._watched: list[weakref.ref | None] = [None] * num_slots
        self._memory: mmap.mmap | None = None

    def take_slot(self) -> int:
        """Return a slot that nobody uses, for the next message."""
        self._num_awaited += 1
        return self._free.pop()

    def load(self, slot: int, message: bytes) -> Any:
        """Return the value that was put into a slot, without a copy if possible."""
        in_use = len(self._watched) - len(self._free)
        has_room = in_use - self._num_awaited < self._num_held
        self._num_awaited -= 1
        header, start, places, size = pickle.loads(message)
        if not size:
            self._free.append(slot)
            return pickle.loads(header)
        if self._memory is None or len(self._memory) < start + size:
            self._memory = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        content = np.frombuffer(self._memory, np.uint8, size, start)
        if has_room:
            # Everything that is made from the arrays keeps `content`, an array that
            # jax has not copied yet included.
            self._watched[slot] = weakref.ref(content, _releaser(slot, self._free))
        else:
            content = content.copy()
            self._free.append(slot)
        whole = memoryview(content)  # pyright: ignore[reportArgumentType]
        buffers = [whole[offset : offset + length] for offset, length in places]
        return pickle.loads(header, buffers=buffers)


def _releaser(slot: int, free: list[int]) -> Callable[[Any], None]:
    return lambda _: free.append(slot)


# ----------------------------------------------------------------------------
# Arrays beside a pickle
# ----------------------------------------------------------------------------


def _dump(
    value: Any, dumps: Callable[..., bytes], small: int
) -> tuple[bytes, list[memoryview]]:
    """Pickle a value, and return the arrays from `small` bytes on apart from it."""
    views: list[memoryview] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < small:
            return True
        views.append(view)
        return False

    return dumps(value, protocol=5, buffer_callback=stays_inside), views


def _places(views: Sequence[memoryview]) -> tuple[list[tuple[int, int]], int]:
    """Return offset and size for each of some views, and where the last one ends."""
    places, start = [], 0
    for view in views:
        places.append((start, view.nbytes))
        start += _aligned(view.nbytes)
    return places, start


def _aligned(size: int, alignment: int = _ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


def _portable(leaf: Any) -> Any:
    """Return arrays in a form that arrives as memory of their own, free to write to."""
    if not isinstance(leaf, np.ndarray) or not leaf.ndim:
        return leaf
    is_plain = leaf.flags.c_contiguous and leaf.flags.writeable
    return leaf if is_plain else np.array(leaf, order="C")
