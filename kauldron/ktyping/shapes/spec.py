"""What a parsed shape spec is made of: one small immutable class per form.

`repr` gives the canonical text: parsing it again gives an equal spec.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

# How tightly each form binds; a child that binds no tighter than its parent gets
# parentheses in the canonical text.
_CHOICE, _SUM, _PRODUCT, _POWER, _UNARY, _ATOM = range(6)

OPERATORS = {
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "//": _PRODUCT,
    "%": _PRODUCT,
    "**": _POWER,
}
FUNCTIONS = ("min", "max", "sum", "prod")

_SIGILS = {(1, 1): "", (0, None): "*", (1, None): "+"}
SINGLE, ANY_NUMBER, ONE_OR_MORE = _SIGILS

Lengths = tuple[int, int | None]


class Dim:
    """One element of a spec. `lengths` says how many axes it consumes (from, to)."""

    lengths: Lengths
    binding = _ATOM

    def children(self) -> tuple[Dim, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Dim))

    def walk(self) -> Iterator[Dim]:
        yield self
        for child in self.children():
            yield from child.walk()

    def _wrap(self, child: Dim) -> str:
        return f"({child!r})" if child.binding <= self.binding else repr(child)


@dataclasses.dataclass(frozen=True, repr=False)
class IntDim(Dim):
    """`7`, `#7`"""

    value: int
    broadcastable: bool = False
    lengths = SINGLE

    def __repr__(self) -> str:
        return f"{'#' if self.broadcastable else ''}{self.value}"


@dataclasses.dataclass(frozen=True, repr=False)
class NamedDims(Dim):
    """`n`, `*b`, `+b`, `#c`, `*#b`"""

    name: str
    lengths: Lengths = SINGLE
    broadcastable: bool = False

    def __repr__(self) -> str:
        hash_sign = "#" if self.broadcastable else ""
        return f"{_SIGILS[self.lengths]}{hash_sign}{self.name}"

    def accepts(self, length: int) -> bool:
        lowest, highest = self.lengths
        return length >= lowest and (highest is None or length <= highest)


@dataclasses.dataclass(frozen=True, repr=False)
class AnonDims(Dim):
    """`_`, `_foo`, `*_`, `+_`, `...`"""

    name: str = ""
    lengths: Lengths = SINGLE

    def __repr__(self) -> str:
        if self.lengths == ANY_NUMBER and not self.name:
            return "..."
        return f"{_SIGILS[self.lengths]}_{self.name}"


@dataclasses.dataclass(frozen=True, repr=False)
class OptionalDim(Dim):
    """`x?`"""

    child: Dim
    binding = -1

    @property
    def lengths(self) -> Lengths:
        return 0, self.child.lengths[1]

    def __repr__(self) -> str:
        return f"{self.child!r}?"


@dataclasses.dataclass(frozen=True, repr=False)
class ChoiceDim(Dim):
    """`a|b`"""

    left: Dim
    right: Dim
    binding = _CHOICE

    @property
    def lengths(self) -> Lengths:
        (low, high), (low_2, high_2) = self.left.lengths, self.right.lengths
        highest = None if high is None or high_2 is None else max(high, high_2)
        return min(low, low_2), highest

    def __repr__(self) -> str:
        return f"{self._wrap(self.left)}|{self._wrap(self.right)}"


@dataclasses.dataclass(frozen=True, repr=False)
class BinaryOpDim(Dim):
    """`a+1`, `h*w`, `h//2`, `2**k`"""

    op: str
    left: Dim
    right: Dim
    lengths = SINGLE

    @property
    def binding(self) -> int:
        return OPERATORS[self.op]

    def __repr__(self) -> str:
        left, right = self._wrap(self.left), self._wrap(self.right)
        if self.op == "**" and self.left.binding == _UNARY:
            left = f"({left})"  # `-a**2` is `-(a**2)`
        if self.op == "*" and right.startswith("*"):
            right = f"({right})"  # `a**b` is a power
        return f"{left}{self.op}{right}"


@dataclasses.dataclass(frozen=True, repr=False)
class NegatedDim(Dim):
    """`-a`"""

    child: Dim
    lengths = SINGLE
    binding = _UNARY

    def __repr__(self) -> str:
        return f"-{self._wrap(self.child)}"


@dataclasses.dataclass(frozen=True, repr=False)
class FunctionDim(Dim):
    """`min(a,b)`, `sum(*b)`"""

    name: str
    arguments: tuple[Dim, ...]
    lengths = SINGLE

    def children(self) -> tuple[Dim, ...]:
        return self.arguments

    def __repr__(self) -> str:
        texts = (
            f"({argument!r})" if argument.binding == _CHOICE else repr(argument)
            for argument in self.arguments
        )
        return f"{self.name}({','.join(texts)})"


@dataclasses.dataclass(frozen=True, repr=False)
class ShapeSpec:
    """A whole spec: its dims from the first axis to the last."""

    dims: tuple[Dim, ...]

    def __repr__(self) -> str:
        return " ".join(map(repr, self.dims))

    @functools.cached_property
    def ranks(self) -> Lengths:
        """The lowest and the highest rank (`None`: no limit) that can match."""
        return total_lengths(self.dims)

    @functools.cached_property
    def is_simple(self) -> bool:
        """Only numbers, names and anonymous dims, and at most one that varies."""
        plain = all(
            isinstance(dim, AnonDims)
            or (isinstance(dim, (IntDim, NamedDims)) and not dim.broadcastable)
            for dim in self.dims
        )
        return plain and sum(dim.lengths != SINGLE for dim in self.dims) <= 1


def total_lengths(dims: tuple[Dim, ...]) -> Lengths:
    """Return how many axes these dims consume together (from, to)."""
    lowest, highest = 0, 0
    for dim in dims:
        low, high = dim.lengths
        lowest += low
        highest = None if highest is None or high is None else highest + high
    return lowest, highest
