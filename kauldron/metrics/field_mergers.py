"""How one field of an `AutoState` is merged, and brought to the host."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kontext
from kauldron.metrics.collected import (
    Collected,
    is_traced,
    pieces_of,
    start_copy,
    to_host,
)
from kauldron.metrics.state import State


@dataclasses.dataclass(frozen=True, kw_only=True)
class Merger(abc.ABC):
    """The rule of a field. Values are neither `EMPTY` nor `None` here."""

    verb: str

    @abc.abstractmethod
    def merge(self, left: Any, right: Any, state: State) -> Any:
        """Both values as one; `state` holds the merged static fields and parent."""

    def finalize(self, value: Any, state: State) -> Any:
        """The value on the host."""
        return to_host(value)


#
# Element by element: sum, minimum, maximum
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elementwise(Merger):
    """Leaf-wise function of numpy and `jax.numpy`; traceable."""

    function: str

    def merge(self, left: Any, right: Any, state: State) -> Any:
        _check_same_structure(left, right)
        return jax.tree.map(self._merge_leaves, left, right)

    def _merge_leaves(self, left: Any, right: Any) -> Any:
        if np.shape(left) != np.shape(right):
            raise ValueError(
                f"shapes {np.shape(left)} and {np.shape(right)} are different"
            )
        is_on_device = isinstance(left, jax.Array) or isinstance(right, jax.Array)
        function = getattr(jnp if is_on_device else np, self.function)
        if self.function == "add":
            left, right = _widen(left), _widen(right)
        return function(left, right)


def _widen(leaf: Any) -> Any:
    """Sums of half floats are float32, of bools int32: neither can count far."""
    dtype = jnp.result_type(leaf)
    if np.issubdtype(dtype, np.bool_):
        return _astype(leaf, np.int32)
    if jnp.issubdtype(dtype, np.floating) and dtype.itemsize < 4:
        return _astype(leaf, np.float32)
    return leaf


def _astype(leaf: Any, dtype: Any) -> Any:
    return leaf.astype(dtype) if hasattr(leaf, "astype") else dtype(leaf)


#
# Collected on the host: concatenation, truncation
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concatenate(Merger):
    """Pieces are kept and concatenated at the end."""

    axis: int = 0

    def merge(self, left: Any, right: Any, state: State) -> Any:
        _check_not_traced(left, right, state)
        start_copy(left)
        start_copy(right)
        return Collected((left, right))

    def finalize(self, value: Any, state: State) -> Any:
        pieces = to_host(pieces_of(value))
        for piece in pieces[1:]:
            _check_same_structure(pieces[0], piece)
        return jax.tree.map(lambda *leaves: self._join(leaves), *pieces)

    def _join(self, leaves: tuple[Any, ...]) -> Any:
        xp = jnp if is_traced(leaves) else np
        arrays = [x if np.ndim(x) else xp.reshape(x, (1,)) for x in leaves]
        if len(arrays) == 1:
            return xp.asarray(arrays[0])
        return xp.concatenate(arrays, axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncate(Concatenate):
    """Like `Concatenate`, but only the first entries are kept."""

    num_field: str

    def merge(self, left: Any, right: Any, state: State) -> Any:
        _check_not_traced(left, right, state)
        limit = self._limit(state)
        if limit is not None and self._length(left) >= limit:
            return left  # full: the other side need not even travel to the host
        start_copy(left)
        start_copy(right)
        length = self._length(left) + self._length(right)
        return Collected((left, right), length=length)

    def finalize(self, value: Any, state: State) -> Any:
        limit = self._limit(state)
        joined = super().finalize(self._needed(value, limit), state)
        if limit is None:
            return joined
        return jax.tree.map(lambda leaf: self._first(leaf, limit), joined)

    def _needed(self, value: Any, limit: int | None) -> Collected:
        """The leading pieces that reach the limit."""
        needed, length = [], 0
        for piece in pieces_of(value):
            needed.append(piece)
            length += self._length(piece)
            if limit is not None and length >= limit:
                break
        return Collected(needed)

    def _length(self, value: Any) -> int:
        """Entries along the axis, read off the shapes."""
        if isinstance(value, Collected) and value.length is not None:
            return value.length
        leaves = [leaf for piece in pieces_of(value) for leaf in _first_leaf(piece)]
        return sum(np.shape(x)[self.axis] if np.ndim(x) else 1 for x in leaves)

    def _first(self, leaf: Any, limit: int) -> Any:
        index = [slice(None)] * np.ndim(leaf)
        index[self.axis] = slice(limit)
        return leaf[tuple(index)]

    def _limit(self, state: State) -> int | None:
        limit = kontext.get_by_path(state, self.num_field)
        if limit is not None and limit < 0:
            raise ValueError(f"{self.num_field!r} is {limit}, but must be at least 0")
        return limit


def _first_leaf(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree)[:1]


def _check_not_traced(left: Any, right: Any, state: State) -> None:
    if is_traced(left) or is_traced(right):
        raise RuntimeError(
            f"{type(state).__qualname__} collects data on the host: its `merge` cannot"
            " be jit-compiled. Return the state from the jitted function and merge"
            " outside."
        )


#
# A state inside the state
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeStates(Merger):
    """The field is a state itself."""

    def merge(self, left: Any, right: Any, state: State) -> Any:
        return left.merge(right)

    def finalize(self, value: Any, state: State) -> Any:
        return value.finalize()


def _check_same_structure(left: Any, right: Any) -> None:
    structures = jax.tree.structure(left), jax.tree.structure(right)
    if structures[0] != structures[1]:
        raise ValueError(
            f"the tree structures {structures[0]} and {structures[1]} are different"
        )


SUM = Elementwise(verb="sum", function="add")
MINIMUM = Elementwise(verb="take the minimum of", function="minimum")
MAXIMUM = Elementwise(verb="take the maximum of", function="maximum")
MERGE_STATES = MergeStates(verb="merge")
