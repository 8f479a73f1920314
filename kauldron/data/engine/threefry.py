"""The few key operations that data order depends on, without jax.

Every permutation and every random transform derives from a threefry key. Computing
keys in plain Python gives the same numbers as jax, keeps data code away from the
accelerator, and lets worker processes start without importing jax.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

_MASK = 0xFFFFFFFF
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Key(NamedTuple):
    """A raw threefry key: the two words of `jax.random.PRNGKey(seed)`."""

    high: int
    low: int


def prng_key(seed: int) -> Key:
    """The key of a seed; negative seeds are taken modulo 2^32.

    >>> prng_key(42)
    Key(high=0, low=42)
    """
    return Key(0, seed & _MASK)


def root_key(seed: int) -> Key:
    """The key of the pipeline that has this seed and is not part of another."""
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
