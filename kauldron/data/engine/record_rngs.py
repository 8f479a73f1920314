"""Random generators for records: a pure function of (seed, stream position)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def op_seed(leaf_seeds: Iterable[tuple[int, int]]) -> int:
    """Seed of a random transform.

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
