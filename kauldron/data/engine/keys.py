"""Seeds of shuffles and random transforms: threefry keys without jax.

Every permutation and every random transform derives from a threefry key. Computing
keys in plain Python gives the same numbers as jax, keeps data code away from the
accelerator, and lets worker processes start without importing jax. The generator of a
record is a pure function of (seed, stream position).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_MASK = 0xFFFFFFFF
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Key(NamedTuple):
    """A raw threefry key: the two words of `jax.random.PRNGKey(seed)`."""

    high: int
    low: int


def prng_key(seed: int) -> Key:
    """Return the key of a seed; negative seeds are taken modulo 2^32.

    >>> prng_key(42)
    Key(high=0, low=42)
    """
    return Key(0, seed & _MASK)


def root_key(seed: int) -> Key:
    """Return the key of the pipeline that has this seed and is not part of another."""
    return fold_in_str(prng_key(seed), "kmix")


def fold_in(key: Key, data: int) -> Key:
    """As `jax.random.fold_in(key, data)`."""
    return Key(*_threefry_2x32(key, 0, data & _MASK))


def fold_in_str(key: Key, text: str) -> Key:
    """As `kauldron.random.fold_in_str(key, text)`."""
    digest = hashlib.sha1(text.encode()).digest()
    return fold_in(key, int.from_bytes(digest[:4], "big"))


def bits(key: Key) -> int:
    """As `jax.random.bits(key)`: one word of 32 random bits."""
    high, low = _threefry_2x32(key, 0, 0)
    return high ^ low


def _threefry_2x32(key: Key, x0: int, x1: int) -> tuple[int, int]:
    words = (key.high, key.low, key.high ^ key.low ^ 0x1BD11BDA)
    x0 = (x0 + words[0]) & _MASK
    x1 = (x1 + words[1]) & _MASK
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = (x0 + x1) & _MASK
            x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) & _MASK
            x1 ^= x0
        x0 = (x0 + words[(group + 1) % 3]) & _MASK
        x1 = (x1 + words[(group + 2) % 3] + group + 1) & _MASK
    return x0, x1


def op_seed(leaf_seeds: Iterable[tuple[int, int]]) -> int:
    """Return the seed of a random transform.

    Args:
      leaf_seeds: For each source below the transform, nearest first, its 32 random
        bits and the number of steps from the transform down to it.
    """
    words = [word for pair in leaf_seeds for word in pair]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


class RecordRngs(Sequence[np.random.Generator]):
    """The generators of some records, each in its initial state whenever asked for.

    One generator is moved around, so be done with `rngs[i]` before taking `rngs[j]`;
    taking `rngs[i]` twice gives the same draws twice.

    Attributes:
      seed: Seed of the random transform.
      positions: Stream position of each record.
    """

    def __init__(self, seed: int, positions: np.ndarray):
        self.seed = seed
        self.positions = positions
        self._bits = np.random.Philox(seed)
        self._generator = np.random.Generator(self._bits)
        self._state: Any = self._bits.state

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, row):  # pyright: ignore[reportIncompatibleMethodOverride]
        # The counter's last word is the position; everything else is as new.
        self._state["state"]["counter"][3] = self.positions[row]
        self._bits.state = self._state
        return self._generator
