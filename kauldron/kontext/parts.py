"""What `Path` and `GlobPath` have in common: an immutable sequence of parts."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Self, SupportsIndex, overload

from kauldron.errors import ReadableKeyError
from kauldron.path_grammar import Part, Wildcard, format_path, parse


class PathSubscriptError(ReadableKeyError, TypeError):
    """A path was indexed with something that is neither an integer nor a slice."""


class PartsSequence(Sequence[Part]):
    """An immutable, hashable sequence of parts that prints as a path."""

    __slots__ = ("_parts",)
    _parts: tuple[Part, ...]

    def __init__(self, *parts: Part) -> None:
        check_parts(parts)
        self._check_wildcards(parts)
        object.__setattr__(self, "_parts", parts)

    @classmethod
    def _check_wildcards(cls, parts: Sequence[Part]) -> None:
        """Raise `ValueError` where wildcards are not allowed."""

    @classmethod
    def _from_valid(cls, parts: tuple[Part, ...]) -> Self:
        """Skip the checks: for parts that come from the parser or from a path."""
        self = cls.__new__(cls)
        object.__setattr__(self, "_parts", parts)
        return self

    @classmethod
    def from_str(cls, str_path: str) -> Self:
        """Parse a path.

        Raises:
          PathSyntaxError: `str_path` is not a path.
          ValueError: It has wildcards, and this class does not take them.
        """
        parts = parse(str_path)
        cls._check_wildcards(parts)
        return cls._from_valid(parts)

    @classmethod
    def from_jax_path(cls, entries: Sequence[Any]) -> Self:
        """Make a path of the key entries that jax's `*_with_path` functions give.

        Raises:
          TypeError: An entry is of unknown type, or a dict key cannot be in a path.
        """
        parts = tuple(map(part_from_jax, entries))
        try:
            return cls(*parts)
        except ValueError as error:
            raise TypeError(f"Not a path: {entries!r}. {error}") from error

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    def relative_to(self, other: PartsSequence) -> Self:
        """Return the parts that follow `other`.

        Raises:
          ValueError: This path does not start with `other`.
        """
        length = len(other)
        if comparable(self.parts[:length]) != comparable(other.parts):
            raise ValueError(f"'{self}' is not a subpath of '{other}'.")
        return self._from_valid(self.parts[length:])

    @overload
    def __getitem__(self, index: SupportsIndex) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._from_valid(self._parts[index])
        try:
            return self._parts[operator.index(index)]
        except TypeError:
            raise PathSubscriptError(
                f"A path is indexed with an integer or a slice, not with {index!r}."
            ) from None

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return comparable(self._parts) == comparable(other._parts)

    def __hash__(self) -> int:
        return hash((type(self), comparable(self._parts)))

    def __str__(self) -> str:
        return format_path(self._parts)

    __repr__ = __str__

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} is immutable: {name!r} is not set."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def comparable(part: Any) -> Any:
    """Return a hashable stand-in for a part, or for a tuple of them.

    It tells wildcards from the keys `"*"` and `"**"`.
    """
    if isinstance(part, tuple):
        return tuple(map(comparable, part))
    if isinstance(part, slice):  # hashable only from Python 3.12 on
        return (slice, part.start, part.stop, part.step)
    if isinstance(part, Wildcard):
        return (Wildcard, part.name)
    return part


#
# Which parts are valid
#


def check_parts(parts: Sequence[Any]) -> None:
    """Raise `ValueError` naming the part that cannot be in a path."""
    for part in parts:
        axes = part if isinstance(part, tuple) else (part,)
        if not all(isinstance(a, slice) or _is_constant(a) for a in axes):
            raise ValueError(
                f"{part!r} cannot be a part of a path. Parts are numbers, strings, "
                "True, False, None, ..., slices, and tuples of these."
            )
        for axis in axes:
            if isinstance(axis, slice):
                _check_bounds(axis)


def _is_constant(part: Any) -> bool:
    if isinstance(part, tuple):
        return all(map(_is_constant, part))
    if isinstance(part, (float, complex)):
        return part == part  # nan has no text that parses back
    return part is None or part is ... or isinstance(part, (int, str))


def _check_bounds(axis: slice) -> None:
    bounds = (axis.start, axis.stop, axis.step)
    if any(b is not None and type(b) is not int for b in bounds):
        raise ValueError(f"{axis!r} cannot be in a path: its bounds must be integers.")


def part_from_jax(entry: Any) -> Any:
    """Return the key, name or index of one jax key entry."""
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is not None:
        if isinstance(entry, (tree_util.DictKey, tree_util.FlattenedIndexKey)):
            return entry.key
        if isinstance(entry, tree_util.GetAttrKey):
            return entry.name
        if isinstance(entry, tree_util.SequenceKey):
            return entry.idx
    raise TypeError(f"{entry!r} ({type(entry).__name__}) is not a key entry of jax.")
