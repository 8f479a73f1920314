"""`Path` and `GlobPath`, the forms in which functions take them, and reading by path."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Self, SupportsIndex, TypeAlias, overload

from kauldron.errors import ReadableKeyError
from kauldron.kontext import nodes
from kauldron.kontext.errors import PathNotFoundError, not_found, structure
from kauldron.kontext.nodes import part_from_jax
from kauldron.kontext.path_builder import DynamicPathBuilder
from kauldron.path_grammar import (
    Part,
    Wildcard,
    check_parts,
    comparable,
    format_path,
    parse,
)
from kauldron.path_grammar import PathSyntaxError as PathSyntaxError


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

    def set_in(self, context: Any, value: Any) -> list[str]:
        """Overwrite everything that this path stands for. See `set_by_path`."""
        from kauldron.kontext.search import set_by_path  # which knows paths

        return set_by_path(context, self, value)

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
            f"{type(self).__name__} is immutable: cannot set {name!r}."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class Path(PartsSequence):
    """A path that leads to one place.

    >>> path = Path.from_str("cams[1].pose")
    >>> path.parts
    ('cams', 1, 'pose')
    >>> Path("cams", 0, "odd key")
    cams[0]['odd key']
    """

    __slots__ = ()

    @classmethod
    def _check_wildcards(cls, parts: Sequence[Part]) -> None:
        check_no_wildcards(parts)

    def get_from(
        self, context: Any, *, default: Any = ..., err_spec: bool = False
    ) -> Any:
        """Return the value this path points to.

        Args:
          context: Any tree of containers and objects.
          default: What to return if there is no value. Without it, that is an error.
          err_spec: Whether the error shows the structure of the whole context.

        Raises:
          PathNotFoundError: There is no value, and no default.
        """
        try:
            return get_by_path(context, self, default)
        except PathNotFoundError as error:
            if err_spec:
                error.args = (f"{error}\nThe context is:\n{structure(context)}",)
            raise


def get_by_path(obj: Any, path: PathLike | None, default: Any = ...) -> Any:
    """Return the value that a path points to.

    Every part is tried as an item first and, if it is a string, as an attribute then.

    >>> get_by_path({"cams": [{"pos": 1}, {"pos": 2}]}, "cams[1].pos")
    2
    >>> get_by_path({"cams": []}, "cams[0].pos", default=None)

    Args:
      obj: Any tree of mappings, sequences, objects and arrays. It is not changed.
      path: The path; the empty one points to `obj` itself. None points nowhere.
      default: What to return if there is no value. Without it, that is an error.

    Returns:
      The value itself, not a copy. For `path=None` the default, or None.

    Raises:
      PathNotFoundError: There is no value, and no default.
      PathSyntaxError: The path is malformed.
    """
    if path is None:
        return None if default is ... else default
    parts = concrete_parts(path)
    value, reached = nodes.walk(obj, parts)
    if reached == len(parts):
        return value
    if default is not ...:
        return default
    raise not_found(parts, reached, value)


class GlobPath(PartsSequence):
    """A path in which `*` stands for one part and `**` for any number of them.

    >>> GlobPath.from_str("enc.**.bias").parts
    ('enc', <Wildcard.DOUBLE_STAR: '**'>, 'bias')
    >>> GlobPath("enc", "*")  # the string is a key; Wildcard.STAR is the wildcard
    enc['*']
    """

    __slots__ = ()

    @property
    def first_non_glob_parent(self) -> Path:
        """All parts before the first wildcard.

        >>> GlobPath.from_str("enc.blocks[2].*.w").first_non_glob_parent
        enc.blocks[2]
        """
        concrete = itertools.takewhile(
            lambda part: not isinstance(part, Wildcard), self.parts
        )
        return Path(*concrete)


#
# The forms in which a function takes a path
#


PathLike: TypeAlias = str | tuple[Part, ...] | PartsSequence | DynamicPathBuilder


def concrete_parts(path: PathLike) -> tuple[Part, ...]:
    """Return the parts of a path, which must not have wildcards."""
    if isinstance(path, str):
        return _parse_concrete(path)
    parts = _parts(path)
    check_no_wildcards(parts)
    return parts


def glob_parts(path: PathLike) -> tuple[Part, ...]:
    """Return the parts of a path that may have wildcards.

    In a plain tuple `"*"` and `"**"` are wildcards.
    """
    if isinstance(path, str):
        return parse(path)
    if isinstance(path, tuple):
        path = tuple(map(_as_wildcard, path))
    return _parts(path)


def _as_wildcard(part: Part) -> Part:
    return Wildcard(part) if isinstance(part, str) and part in ("*", "**") else part


def is_path(value: Any) -> bool:
    """Return whether a key value is one path, and not a tree of paths."""
    return isinstance(value, (str, PartsSequence, DynamicPathBuilder))


def check_no_wildcards(parts: Sequence[Part]) -> None:
    """Raise `ValueError` that says where wildcards can be used."""
    for part in parts:
        if isinstance(part, Wildcard):
            raise ValueError(
                f"'{format_path(parts)}' has the wildcard '{part}'. Wildcards need a "
                "function that takes glob paths: set_by_path, filter_by_path, "
                "iter_by_path, tree metrics (TreeMap, TreeReduce)."
            )


@functools.lru_cache(maxsize=8192)
def _parse_concrete(text: str) -> tuple[Part, ...]:
    parts = parse(text)
    check_no_wildcards(parts)
    return parts


def _parts(path: Any) -> tuple[Part, ...]:
    if isinstance(path, PartsSequence):
        return path.parts
    if isinstance(path, DynamicPathBuilder):
        return parse(str(path))
    if isinstance(path, tuple):
        check_parts(path)
        return path
    raise TypeError(
        f"A path is a str, a tuple of parts, a Path or a path builder, not "
        f"{type(path).__name__}: {path!r}"
    )


def parse_parts(text: str) -> list[Part]:
    """Return the parts of a path, as a new list.

    >>> parse_parts("a.b[0].*")
    ['a', 'b', 0, <Wildcard.STAR: '*'>]

    Raises:
      PathSyntaxError: `text` is not a path.
    """
    return list(parse(text))
