"""Collectors from before `AutoState`; they warn, and still work."""

from __future__ import annotations

import dataclasses
import types
import warnings
from typing import Any, Self

import flax.struct
import jax
import numpy as np

from kauldron.metrics.state import (
    MetricT,
    State,
    check_not_traced,
    is_traced,
    start_copy,
    to_host,
)


@flax.struct.dataclass
class CollectingState(State[MetricT]):
    """Deprecated: use `AutoState` with `concat_field`.

    Every field is an array; arrays of merged states are concatenated.
    """

    def __post_init__(self) -> None:
        warnings.warn(
            f"{type(self).__qualname__} collects arrays the old way. Derive it from"
            " AutoState and declare its fields with concat_field (or truncate_field).",
            DeprecationWarning,
            stacklevel=3,
        )
        for name in _array_names(type(self)):
            object.__setattr__(self, name, self._as_pieces(name, getattr(self, name)))

    def _as_pieces(self, name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, tuple):  # merged, or rebuilt by jax
            return value
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return (value if value.ndim else value.reshape(1),)
        raise TypeError(
            f"Field {name!r} of {type(self).__qualname__} must be an array, but is"
            f" {type(value).__qualname__}."
        )

    @classmethod
    def empty(cls) -> Self:
        return cls(**dict.fromkeys(_array_names(cls), ()))

    def merge(self, other: Self) -> Self:
        check_not_traced(self, (self, other))
        pieces = {}
        for name in _array_names(type(self)):
            pieces[name] = getattr(self, name) + getattr(other, name)
            start_copy(getattr(other, name))
        return self.replace(**pieces)

    def finalize(self) -> Self:
        return self.replace(
            **{
                name: (np.concatenate(to_host(pieces)),)
                for name in _array_names(type(self))
                if not is_traced(pieces := getattr(self, name)) and pieces
            }
        )

    def compute(self) -> Any:
        """Return the concatenated arrays as a namespace."""
        return types.SimpleNamespace(
            **{
                name: np.concatenate(pieces)
                if (pieces := getattr(self, name))
                else None
                for name in _array_names(type(self))
            }
        )


@flax.struct.dataclass
class CollectFirstState(CollectingState[MetricT]):
    """Deprecated: use `AutoState` with `truncate_field`.

    Attributes:
      keep_first: How many entries to keep.
    """

    keep_first: int = flax.struct.field(pytree_node=False, kw_only=True)

    @classmethod
    def empty(cls) -> Self:
        return cls(keep_first=0, **dict.fromkeys(_array_names(cls), ()))

    def merge(self, other: Self) -> Self:
        if self._is_empty() or other._is_empty():
            return other if self._is_empty() else self
        if self.keep_first != other.keep_first:
            raise ValueError(
                f"Cannot merge states of {type(self).__qualname__}: keep_first is"
                f" {self.keep_first} in one and {other.keep_first} in the other."
            )
        return super().merge(other)

    def finalize(self) -> Self:
        state = super().finalize()
        return state.replace(
            **{
                name: tuple(piece[: self.keep_first] for piece in getattr(state, name))
                for name in _array_names(type(self))
            }
        )

    def _is_empty(self) -> bool:
        return not any(getattr(self, name) for name in _array_names(type(self)))


def _array_names(cls: type) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.metadata.get("pytree_node", True)
    ]
