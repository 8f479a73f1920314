"""Arrays collected over batches, and their way to the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np


class Collected:
    """Pieces collected one after the other; immutable, and joined in constant time.

    A piece is an array or a tree of arrays. Joining two collections makes a node that
    points to both, so that collecting `n` batches costs `n` steps. `sample` is one of
    the pieces.
    """

    __slots__ = ("_items", "length", "sample")

    def __init__(self, items: Iterable[Any], *, length: int | None = None) -> None:
        """Make a collection.

        Args:
          items: Pieces and collections, in order.
          length: Number of entries along the collected axis, if known.
        """
        self._items = tuple(items)
        self.length = length
        last = self._items[-1] if self._items else None
        self.sample = last.sample if isinstance(last, Collected) else last

    def __iter__(self) -> Iterator[Any]:
        pending = list(reversed(self._items))
        while pending:
            item = pending.pop()
            if isinstance(item, Collected):
                pending.extend(reversed(item._items))
            else:
                yield item

    def __repr__(self) -> str:
        return f"Collected({len(list(self))} pieces)"

    def __reduce__(self) -> Any:
        return _make_collected, (tuple(self), self.length)


def _make_collected(pieces: Iterable[Any], length: int | None) -> Collected:
    return Collected(pieces, length=length)


jax.tree_util.register_pytree_with_keys(
    Collected,
    lambda collected: (
        [(jax.tree_util.SequenceKey(i), piece) for i, piece in enumerate(collected)],
        collected.length,
    ),
    lambda length, pieces: Collected(pieces, length=length),
)


def pieces_of(value: Any) -> list[Any]:
    """Return the pieces of a collection; one if the value is not collected yet."""
    return list(value) if isinstance(value, Collected) else [value]


def is_traced(tree: Any) -> bool:
    """Return whether any leaf is a tracer; constant time for collections."""
    if isinstance(tree, Collected):  # its pieces went into jit together, or none did
        tree = tree.sample
    if isinstance(tree, np.ndarray | jax.Array):
        return isinstance(tree, jax.core.Tracer)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def start_copy(value: Any) -> None:
    """Start copying a piece to the host without waiting; collections are under way."""
    if isinstance(value, Collected):
        return
    leaves = [value] if isinstance(value, jax.Array) else jax.tree.leaves(value)
    with jax.transfer_guard_device_to_host("allow"):  # asked for, and nobody waits
        for leaf in leaves:
            if isinstance(leaf, jax.Array):
                leaf.copy_to_host_async()


def to_host(tree: Any) -> Any:
    """Return every device array as numpy; tracers and the rest stay."""
    leaves, structure = jax.tree.flatten(tree)
    on_device = [
        isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
        for leaf in leaves
    ]
    if not any(on_device):
        return tree
    with jax.transfer_guard("allow"):
        for leaf, is_device_array in zip(leaves, on_device):
            if is_device_array:
                leaf.copy_to_host_async()
        return structure.unflatten(
            np.asarray(leaf) if is_device_array else leaf
            for leaf, is_device_array in zip(leaves, on_device)
        )
