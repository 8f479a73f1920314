"""Permutations that are computed, not stored: a Feistel cipher over record numbers.

`shuffle_indices` walks an n-item epoch in an order that depends on `(seed, n)` alone,
so any part of an epoch can be computed without the rest. The order equals grain's
`index_shuffle` with four rounds, except for sizes `2^m + 1` (m even, 16 or more):
there grain takes a block one bit too small and repeats a record; this cipher does not.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

_MASK = 0xFFFFFFFF
_CHUNK = 1 << 16


def shuffle_indices(indices: np.ndarray, *, size: int, seed: int) -> np.ndarray:
    """Where the positions `indices` of an epoch of `size` items point to.

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
    word_bits = block_bits // 2
    dtype = np.uint32 if block_bits <= 32 else np.uint64
    keys = [key & ((1 << word_bits) - 1) for key in _round_keys(seed & _MASK)]
    out = _encrypt(indices.astype(dtype).ravel(), word_bits, keys)
    # Cycle walking: what leaves the range is encrypted again until it falls into it.
    (outside,) = np.nonzero(out > max_index)
    while outside.size:
        again = _encrypt(out[outside], word_bits, keys)
        out[outside] = again
        outside = outside[again > max_index]
    return out.astype(np.int64).reshape(indices.shape)


class EpochOrder:
    """The permutations of all epochs of one shuffled stream, cached in chunks.

    Epoch `e` uses the seed `seed + e`, so epochs differ. Threads may share it.
    """

    def __init__(self, size: int, seed: int, *, max_cached: int = 32):
        self._size = size
        self._seed = seed
        self._max_cached = max_cached
        self._chunks: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def span(self, epoch: int, span: range) -> np.ndarray:
        """Items at a span of positions of one epoch."""
        chunk_id = span[0] // _CHUNK
        if span[-1] // _CHUNK != chunk_id:
            indices = np.arange(span.start, span.stop, span.step)
            return self(np.full(len(indices), epoch), indices)
        offset = chunk_id * _CHUNK
        chunk = self._chunk(epoch, chunk_id)
        return chunk[span.start - offset : span.stop - offset : span.step]

    def __call__(self, epochs: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Items that stand at `indices` of `epochs` (both 1-d, of equal length)."""
        out = np.empty(len(indices), np.int64)
        chunk_ids = indices // _CHUNK
        runs = np.unique(np.stack([epochs, chunk_ids]), axis=1).T.tolist()
        if len(runs) > self._max_cached:  # from all over large epochs
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                seed = self._seed + epoch
                out[here] = shuffle_indices(indices[here], size=self._size, seed=seed)
            return out
        for epoch, chunk_id in runs:
            here = (epochs == epoch) & (chunk_ids == chunk_id)
            chunk = self._chunk(epoch, chunk_id)
            out[here] = chunk[indices[here] - chunk_id * _CHUNK]
        return out

    def _chunk(self, epoch: int, chunk_id: int) -> np.ndarray:
        key = (epoch, chunk_id)
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is None:
                stop = min((chunk_id + 1) * _CHUNK, self._size)
                positions = np.arange(chunk_id * _CHUNK, stop)
                chunk = shuffle_indices(
                    positions, size=self._size, seed=self._seed + epoch
                )
                self._chunks[key] = chunk
            self._chunks.move_to_end(key)
            while len(self._chunks) > self._max_cached:
                self._chunks.popitem(last=False)
            return chunk


def _encrypt(values: np.ndarray, word_bits: int, keys: list[int]) -> np.ndarray:
    dtype = values.dtype.type
    mask, shift = dtype((1 << word_bits) - 1), dtype(word_bits)
    left, right = values >> shift, values & mask
    mix = _mixer(word_bits)
    for key_left, key_right in (keys[:2], keys[2:]):
        left ^= mix(right)
        left ^= dtype(key_left)
        right ^= mix(left)
        right ^= dtype(key_right)
    left <<= shift
    left |= right
    return left


@functools.cache
def _mixer(word_bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """The round function, from a table where the words are short enough for one."""
    if word_bits > 16:
        return functools.partial(_mix, bits=word_bits)
    table = _mix(np.arange(1 << word_bits, dtype=np.uint32), bits=word_bits)
    return functools.partial(np.take, table)


def _mix(x: np.ndarray, bits: int) -> np.ndarray:
    return (_rotate(x, 1, bits) & _rotate(x, 8, bits)) ^ _rotate(x, 2, bits)


def _rotate(x: np.ndarray, by: int, bits: int) -> np.ndarray:
    dtype = x.dtype.type
    by %= bits
    if by == 0:
        return x
    return ((x << dtype(by)) | (x >> dtype(bits - by))) & dtype((1 << bits) - 1)


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
