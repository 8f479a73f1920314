"""Sizes of axes, and what is known about the names that stand for them.

A size is a Python int, a symbolic size of JAX, or not known. Everything the matcher
asks about two sizes is answered here, so that no other file needs to know that some
sizes are not ints.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron.ktyping.shapes import spec as s

Size = Any  # int, a symbolic size of JAX, or an UnknownDim
Sizes = tuple[Size, ...]


class ShapeError(ValueError):
    """A shape spec cannot be evaluated or is too ambiguous to be matched."""


class UnknownDim:
    """The type of `UNKNOWN_DIM`. Arithmetic with an unknown size is unknown."""

    __slots__ = ("_name",)

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name

    def _absorb(self, other: Any) -> UnknownDim:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _absorb
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _absorb

    def __neg__(self) -> UnknownDim:
        return self


UNKNOWN_DIM = UnknownDim("UNKNOWN_DIM")
"""A broadcastable dim was only seen as 1, so its true size is open."""

UNSIZED_DIM = UnknownDim("UNSIZED_DIM")
"""The array itself does not know the size of the axis (`None` in its shape)."""


def is_symbolic(size: Any) -> bool:
    """Return whether `size` comes from `jax.export.symbolic_shape`."""
    return hasattr(size, "dimension_as_value")


def compatible(left: Size, right: Size) -> bool:
    """Return whether two sizes may be equal: false only if they provably differ."""
    if left is right:
        return True
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    if isinstance(left, UnknownDim) or isinstance(right, UnknownDim):
        return True
    return not (_provably_less(left, right) or _provably_less(right, left))


def provably_negative(size: Size) -> bool:
    """Return whether `size` cannot be the size of an axis."""
    if isinstance(size, int):
        return size < 0
    return not isinstance(size, UnknownDim) and _provably_less(size, 0)


def _provably_less(left: Size, right: Size) -> bool:
    try:
        return bool(right >= left + 1)
    except Exception:  # JAX raises where a comparison is inconclusive
        return False


def refine(stored: Size, seen: Size) -> Size:
    """Return the more exact one of two compatible sizes; `stored` if in doubt."""
    return seen if _vagueness(seen) < _vagueness(stored) else stored


def _vagueness(size: Size) -> int:
    if isinstance(size, int):
        return 0
    if size is UNKNOWN_DIM:
        return 3
    return 2 if size is UNSIZED_DIM else 1


def static_shape(shape: Any) -> Sizes | None:
    """Return the sizes in a `shape` attribute; `None` if the rank is unknown.

    >>> static_shape((2, None))
    (2, UNSIZED_DIM)
    """
    if type(shape) is tuple:
        for size in shape:
            if type(size) is not int:
                break
        else:
            return shape
    try:
        return tuple(_static_size(size) for size in shape)
    except (TypeError, ValueError):  # TensorFlow refuses to iterate an unknown rank
        return None


def _static_size(size: Any) -> Size:
    if size is None or isinstance(size, UnknownDim):
        return UNSIZED_DIM if size is None else size
    if is_symbolic(size):
        return size
    if getattr(size, "value", size) is None:  # TensorFlow's Dimension(None)
        return UNSIZED_DIM
    try:
        return operator.index(size)
    except TypeError:
        return int(size)


def format_size(size: Size) -> str:
    """`3`, `#` for an unknown size, `&expr` for a symbolic one."""
    if isinstance(size, UnknownDim):
        return "#"
    return f"&{size}" if is_symbolic(size) else str(size)


def format_sizes(sizes: Sizes) -> str:
    """Return one size as it is, several in parentheses."""
    if len(sizes) == 1:
        return format_size(sizes[0])
    return f"({', '.join(map(format_size, sizes))})"


#
# Assignments of sizes to names
#


Dims = Mapping[str, Any]  # from name to sizes; names that start with `$` are structures


class Pending(list[s.Dim]):
    """The parts of a spec that could not be determined yet.

    Args:
      settle: Nothing more will be known, so `h//2` on an axis of 3 may conclude that
        `h` is 6, although it could be 7.
    """

    __slots__ = ("settle",)

    def __init__(self, settle: bool = False):
        super().__init__()
        self.settle = settle


def bind(dim: s.NamedDims, sizes: tuple[Size, ...], dims: Dims) -> Dims | None:
    """`dims` after seeing `sizes` for the name, `None` if they disagree."""
    known = dims.get(dim.name)
    if known is None:
        if dim.broadcastable:  # a 1 says nothing about the size of a `#` dim
            sizes = tuple(UNKNOWN_DIM if size == 1 else size for size in sizes)
        return {**dims, dim.name: sizes}
    if known == sizes:
        return dims
    if len(known) != len(sizes):
        return None
    if dim.broadcastable:
        sizes = tuple(old if new == 1 else new for old, new in zip(known, sizes))
    if not all(map(compatible, known, sizes)):
        return None
    refined = tuple(map(refine, known, sizes))
    return (
        dims if all(map(operator.is_, refined, known)) else {**dims, dim.name: refined}
    )


State = tuple[Dims, ...]

EMPTY_STATE: State = ({},)

MAX_CANDIDATES = 10_000


def merged(candidates: Iterable[Dims]) -> State | None:
    """Return candidates in order, each once; `None` if there are none."""
    distinct: dict[frozenset, Dims] = {}
    for dims in candidates:
        distinct.setdefault(frozenset(dims.items()), dims)
        if len(distinct) > MAX_CANDIDATES:
            raise too_ambiguous()
    return tuple(distinct.values()) or None


def too_ambiguous() -> ShapeError:
    return ShapeError("a shape is too ambiguous; name or fix some dims")
