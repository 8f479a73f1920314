"""Many small arrays as a few: compiled calls are quicker with fewer arguments."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LARGEST_PACKED = 64


class LeafPacking:
    """How the small leaves of a tree are put into one vector per dtype.

    Example:
      >>> tree = {"a": np.float32(1), "b": np.ones((2, 2), np.float32), "c": np.int32(3)}
      >>> packing = LeafPacking(tree)
      >>> [vector.tolist() for vector in packing.pack(tree)]
      [[1.0, 1.0, 1.0, 1.0, 1.0], [3]]
      >>> packing.unpack(packing.pack(tree))["b"].shape
      (2, 2)
    """

    def __init__(self, tree: Any):
        """Look at a tree of arrays, or at their specs."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._dtypes = [leaf.dtype for leaf in leaves]
        groups: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            is_large = math.prod(leaf.shape) > _LARGEST_PACKED
            groups.setdefault(index if is_large else leaf.dtype, []).append(index)
        self._groups = list(groups.values())

    def zeros(self) -> list[np.ndarray]:
        """The vectors of a tree of zeros."""
        return [
            np.zeros(
                sum(math.prod(self._shapes[index]) for index in group),
                self._dtypes[group[0]],
            )
            for group in self._groups
        ]

    def pack(self, tree: Any) -> list[Any]:
        """The leaves in vectors."""
        leaves = jax.tree.leaves(tree)
        return [
            jnp.concatenate([jnp.ravel(leaves[index]) for index in group])
            for group in self._groups
        ]

    def unpack(self, vectors: list[Any]) -> Any:
        """The tree again; of numpy arrays, if the vectors are some."""
        leaves: list[Any] = [None] * len(self._shapes)
        for group, vector in zip(self._groups, vectors):
            start = 0
            for index in group:
                shape = self._shapes[index]
                end = start + math.prod(shape)
                leaves[index] = vector[start:end].reshape(shape)
                start = end
        return self._structure.unflatten(leaves)
