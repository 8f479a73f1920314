"""Permutations that are computed, not stored: a Feistel cipher over record numbers.

`shuffle_indices` walks an n-item epoch in an order that depends on `(seed, n)` alone,
so any part of an epoch can be computed without the rest. The order equals grain's
`index_shuffle` with four rounds, except for sizes `2^m + 1` (m even, 16 or more):
there grain takes a block one bit too small and repeats a record; this cipher does not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

_MASK = 0xFFFFFFFF
_CHUNK = 1 << 16
_MAX_KEPT = 32  # chunks of one stream
_SMALL = 1 << 12  # such epochs cost more to shuffle than to remember


def shuffle_indices(indices: np.ndarray, *, size: int, seed: int) -> np.ndarray:
    """Return where the positions `indices` of an epoch of `size` items point to.

    Args:
      indices: Integers in `[0, size)`, any shape.
      size: Number of items that are permuted, at least 1.
      seed: Names the permutation, taken modulo 2^32.

    Returns:
      int64 array of the same shape: the image of each index. Over all of
      `range(size)` every item appears exactly once.
    """
    indices = np.asarray(indices)
    if size == 1:
        return np.zeros(indices.shape, np.int64)
    max_index = size - 1
    block_bits = max(16, max_index.bit_length() + max_index.bit_length() % 2)
    encrypt = _Cipher(block_bits // 2, _round_keys(seed & _MASK))
    out = indices.ravel().astype(encrypt.dtype)
    if block_bits == 16:
        # The whole block at once: from here on, encrypting is looking up.
        block = encrypt(np.arange(1 << 16, dtype=encrypt.dtype)).astype(np.uint16)
        out, encrypt = block.take(out), _further_along(block, size).take
    else:
        out = encrypt(out)
    # Cycle walking: what leaves the range is encrypted again until it falls into it.
    (outside,) = np.nonzero(out > max_index)
    while outside.size:
        again = encrypt(out[outside])
        out[outside] = again
        outside = outside[again > max_index]
    return out.astype(np.int64, copy=False).reshape(indices.shape)


def _further_along(block: np.ndarray, size: int) -> np.ndarray:
    """Return a table that takes several steps in one and stays in the range.

    Where few items are spread over the block, walks would be thousands of steps long.
    """
    table = block.copy()
    table[:size] = np.arange(size)
    longest_walk = len(block) / size * math.log(size + 1)
    for _ in range(round(math.log2(longest_walk / 12))):
        table = table.take(table)
    return table


class EpochOrder:
    """The permutations of all epochs of one shuffled stream; some chunks are kept.

    Epoch `e` uses the seed `seed + e`, so epochs differ. Threads may share it.
    """

    def __init__(self, size: int, seed: int):
        self._size = size
        self._seed = seed
        make_chunk = functools.partial(_make_chunk, size, seed)
        self._chunk = functools.lru_cache(_MAX_KEPT)(make_chunk)

    def span(self, positions: range) -> np.ndarray:
        """Items at consecutive stream positions, as positions of their epoch."""
        pieces = []
        while positions:
            epoch, index = divmod(positions.start, self._size)
            chunk_id, offset = divmod(index, _CHUNK)
            room = min(self._size - index, _CHUNK - offset)
            count = min(len(positions), -(-room // positions.step))
            stop = offset + count * positions.step
            items = self._chunk(epoch, chunk_id)[offset : stop : positions.step]
            pieces.append(items + epoch * self._size)
            positions = positions[count:]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def __call__(self, epochs: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Items that stand at `indices` of `epochs` (both 1-d, of equal length)."""
        out = np.empty(len(indices), np.int64)
        chunk_ids = indices // _CHUNK
        num_chunks = -(-self._size // _CHUNK)
        runs = epochs * num_chunks + chunk_ids
        distinct = np.unique(runs).tolist()
        if len(distinct) > _MAX_KEPT:  # from all over large epochs
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                seed = self._seed + epoch
                out[here] = shuffle_indices(indices[here], size=self._size, seed=seed)
            return out
        for run in distinct:
            here = runs == run
            epoch, chunk_id = divmod(run, num_chunks)
            chunk = self._chunk(epoch, chunk_id)
            out[here] = chunk[indices[here] - chunk_id * _CHUNK]
        return out


def _make_chunk(size: int, seed: int, epoch: int, chunk_id: int) -> np.ndarray:
    if size <= _SMALL:
        return _small_epoch(size, seed + epoch)
    start = chunk_id * _CHUNK
    positions = np.arange(start, min(start + _CHUNK, size))
    return shuffle_indices(positions, size=size, seed=seed + epoch)


@functools.lru_cache(maxsize=64)
def _small_epoch(size: int, seed: int) -> np.ndarray:
    """Return the order of a whole epoch; iterators of the same data share it."""
    order = shuffle_indices(np.arange(size), size=size, seed=seed)
    order.flags.writeable = False
    return order


class _Cipher:
    """The four-round Feistel cipher on blocks of two words.

    Attributes:
      dtype: Of the blocks.
    """

    def __init__(self, word_bits: int, keys: Sequence[int]):
        mask = (1 << word_bits) - 1
        self._bits = word_bits
        size = next(size for size in (8, 16, 32) if word_bits <= size)
        self._word = np.dtype(f"uint{size}").type
        self.dtype = np.dtype(f"uint{2 * size}").type
        self._mask = self._word(mask)
        self._keys = [self._word(key & mask) for key in keys]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        left = (values >> self.dtype(self._bits)).astype(self._word)
        right = values.astype(self._word)
        right &= self._mask
        for number, key in enumerate(self._keys):
            target, other = (right, left) if number % 2 else (left, right)
            target ^= self._mix(other)
            target ^= key
        return (left.astype(self.dtype) << self.dtype(self._bits)) | right

    def _mix(self, x: np.ndarray) -> np.ndarray:
        mixed = self._rotated(x, 1)
        mixed &= self._rotated(x, 8)
        mixed ^= self._rotated(x, 2)
        if mixed.itemsize * 8 > self._bits:
            mixed &= self._mask
        return mixed

    def _rotated(self, x: np.ndarray, by: int) -> np.ndarray:
        """Rotated to the left, with anything in the bits beyond the word."""
        by %= self._bits
        if not by:
            return x
        rotated = x << self._word(by)
        rotated |= x >> self._word(self._bits - by)
        return rotated


def _round_keys(seed: int) -> list[int]:
    """Four words of C++ `std::seed_seq{seed}`, which is how the cipher is keyed."""

    def scramble(x: int) -> int:
        return x ^ (x >> 27)

    words = [0x8B8B8B8B] * 4
    for k in range(4):
        x = scramble(words[k] ^ words[(k + 1) % 4] ^ words[(k - 1) % 4])
        first = 1664525 * x & _MASK
        second = (first + (1 if k == 0 else k + seed if k == 1 else k)) & _MASK
        words[(k + 1) % 4] = (words[(k + 1) % 4] + first) & _MASK
        words[(k + 2) % 4] = (words[(k + 2) % 4] + second) & _MASK
        words[k] = second
    for k in range(4):
        x = scramble((words[k] + words[(k + 1) % 4] + words[(k - 1) % 4]) & _MASK)
        third = 1566083941 * x & _MASK
        fourth = (third - k) & _MASK
        words[(k + 1) % 4] ^= third
        words[(k + 2) % 4] ^= fourth
        words[k] = fourth
    return words
