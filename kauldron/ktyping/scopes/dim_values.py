"""One assignment of dims as a mapping that can be hashed, for users to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kauldron.ktyping.shapes.arithmetic import Dims
from kauldron.ktyping.shapes.matching import EMPTY_STATE, State, merged
from kauldron.ktyping.shapes.sizes import format_sizes


class DimValues(Mapping[str, Any]):
    """An immutable mapping from name to sizes. `a | b` overlays `b`."""

    __slots__ = ("_dims",)

    def __init__(self, *args: Any, **kwargs: Any):
        self._dims = dict(*args, **kwargs)

    def __getitem__(self, name: str) -> Any:
        return self._dims[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims)

    def __len__(self) -> int:
        return len(self._dims)

    def __hash__(self) -> int:
        return hash(frozenset(self._dims.items()))

    def __or__(self, other: Mapping[str, Any]) -> DimValues:
        return DimValues({**self._dims, **other})

    def __repr__(self) -> str:
        return format_dims(self._dims)


def as_state(candidates: Any) -> State:
    """A state from any iterable of mappings; the empty one if there are none."""
    plain = ({**dims} for dims in candidates)
    return merged(plain) or EMPTY_STATE


def format_dims(dims: Dims) -> str:
    """`{*b: (6, 4), d: 10}`"""
    items = (
        f"{starred(name, sizes)}: {format_sizes(sizes)}"
        for name, sizes in dims.items()
        if not name.startswith("$")
    )
    return f"{{{', '.join(items)}}}"


def starred(name: str, sizes: Any) -> str:
    """The name, with a `*` unless it stands for exactly one axis."""
    return name if len(sizes) == 1 else f"*{name}"
