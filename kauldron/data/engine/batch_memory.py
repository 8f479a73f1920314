"""Where the arrays of batches are, and what data workers share with their parent.

Arrays that nobody holds any more make room for the next ones: new memory costs more than
to fill it. They are placed so that jax can use them on a CPU without a copy.

A value is pickled with its large arrays left out; those stand in memory that both
processes have mapped. The memory is a file without a name, so nothing is left behind
when either side is killed.

The pipeline travels once, to all workers together. Batches come back in slots, a few for
each worker: the parent hands out the arrays where they are, and a slot is used again
once nobody holds an array in it any more.
"""

from __future__ import annotations

import collections
import math
import mmap
import os
import pickle
import struct
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from kauldron.data.engine import trees

_HEADER = struct.Struct("<Q")
_ALIGNMENT = 64  # jax uses arrays that begin at a multiple of it without a copy
_SMALL_IN_STACKS = 1 << 15  # smaller arrays are quicker to copy than to place

# At most so many blocks of memory are kept for later arrays, and none that is larger.
_MOST_KEPT = 32
_LARGEST_KEPT = 2 * 2**20

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

    It is pickled at once; its arrays are written later. Whoever makes it closes `fd`.
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
        with open(self.fd, "wb", closefd=False) as file:
            file.write(_HEADER.pack(len(self._index)) + self._index)
            for (offset, _), view in zip(self._places, self._views):
                file.seek(first + offset)
                file.write(view)


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


# ----------------------------------------------------------------------------
# Slots for batches
# ----------------------------------------------------------------------------


class SharedSlots:
    """The worker's side: places in shared memory, each for one message at a time."""

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

    Arrays that are still in use hold their slots, at most `num_held` of them. Messages
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


# ----------------------------------------------------------------------------
# Memory of this process
# ----------------------------------------------------------------------------


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return a new array that jax can use on a CPU without a copy.

    Its memory may have been that of an earlier one, which nobody holds any more: neither
    a view of it, nor a jax array that uses it.
    """
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    if count * dtype.itemsize < _SMALL_IN_STACKS:
        return np.empty(shape, dtype)
    return _memory.take(count, dtype).reshape(shape)


class _Block(NamedTuple):
    """Memory that arrays stand on, one after the other."""

    memory: memoryview
    start: int
    num_bytes: int


class _Watch(weakref.ref):
    """Knows which block becomes free when an array dies."""

    __slots__ = ("block",)
    block: _Block


class _ReusedMemory:
    """Blocks of memory that are used again, by any thread."""

    def __init__(self):
        # All operations on these are atomic: arrays may die anywhere, at any time.
        self._free: collections.deque[_Block] = collections.deque(maxlen=_MOST_KEPT)
        self._watches: dict[int, _Watch] = {}

    def take(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return a flat array."""
        num_bytes = count * dtype.itemsize
        block = self._find(num_bytes)
        # Whatever is made from it keeps this array, as what it stands on is not one.
        array = np.frombuffer(block.memory, dtype, count, block.start)
        if num_bytes <= _LARGEST_KEPT:
            watch = _Watch(array, self._take_back)
            watch.block = block
            self._watches[id(watch)] = watch
        return array

    def _take_back(self, watch: _Watch) -> None:
        del self._watches[id(watch)]
        self._free.append(watch.block)

    def _find(self, num_bytes: int) -> _Block:
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:
                break
            if block.num_bytes == num_bytes:
                return block
            self._free.appendleft(block)
        memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
        return _Block(memory.data, -memory.ctypes.data % _ALIGNMENT, num_bytes)


_memory = _ReusedMemory()


class RowStacker:
    """Copies the large arrays of each record to their place in the batch at once.

    The memory of a record serves the next one then, while it is in the cache. Records
    that are held until all are there cost new pages instead.

    Attributes:
      records: What was added, `None` included; large arrays are views of the batch.

    Example:
      >>> stacker = RowStacker(2)
      >>> for label in (3, 5):
      ...     stacker.add({"image": np.full((128, 256), label, np.uint8), "label": label})
      >>> columns = stacker.columns()
      >>> columns["image"].shape, columns["label"]
      ((2, 128, 256), array([3, 5]))
    """

    def __init__(self, size: int):
        self.records: list[Any] = []
        self._size = size
        self._columns: dict[str, np.ndarray] = {}
        self._is_even = True

    def add(self, record: Any) -> None:
        """Take the next record in."""
        if not self.records and type(record) is dict:
            self._columns = {
                name: empty((self._size, *value.shape), value.dtype)
                for name, value in record.items()
                if _is_large(value)
            }
        self._is_even = self._is_even and self._fits(record)
        if self._is_even:
            rows = {
                name: column[len(self.records)]
                for name, column in self._columns.items()
            }
            for name, row in rows.items():
                row[...] = record[name]
            record = record | rows
        self.records.append(record)

    def columns(self) -> Any:
        """Return the records as columns; `None` if they do not look alike."""
        if not self._is_even or len(self.records) != self._size:
            return None
        first, large = self.records[0], self._columns
        small = [
            {name: value for name, value in record.items() if name not in large}
            for record in self.records
        ]
        try:
            stacked = trees.stack(small)
        except trees.RecordMismatchError:
            return None
        return {name: large[name] if name in large else stacked[name] for name in first}

    def _fits(self, record: Any) -> bool:
        if type(record) is not dict or not self._columns:
            return False
        return all(
            type(record.get(name)) is np.ndarray
            and record[name].shape == column.shape[1:]
            and record[name].dtype == column.dtype
            for name, column in self._columns.items()
        )


def _is_large(value: Any) -> bool:
    return (
        type(value) is np.ndarray
        and value.dtype.kind in "biufc"
        and value.nbytes >= _SMALL_IN_STACKS
    )
