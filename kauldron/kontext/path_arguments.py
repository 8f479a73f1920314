"""The forms in which a function takes a path."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

from kauldron.kontext.parts_sequence import PartsSequence, check_parts
from kauldron.kontext.path_builder import DynamicPathBuilder
from kauldron.path_grammar import Part, Wildcard, format_path, parse

PathLike: TypeAlias = str | tuple[Part, ...] | PartsSequence | DynamicPathBuilder


def concrete_parts(path: PathLike) -> tuple[Part, ...]:
    """The parts of a path that leads to one place.

    Raises:
      TypeError: Not a path.
      ValueError: A part is not valid, or there are wildcards.
    """
    if isinstance(path, str):
        return _parse_concrete(path)
    parts = _parts(path)
    check_no_wildcards(parts)
    return parts


def glob_parts(path: PathLike) -> tuple[Part, ...]:
    """The parts of a path that may have wildcards.

    In a plain tuple `"*"` and `"**"` are wildcards.

    Raises:
      TypeError: Not a path.
      ValueError: A part is not valid.
    """
    if isinstance(path, str):
        return parse(path)
    if isinstance(path, tuple):
        path = tuple(map(_as_wildcard, path))
    return _parts(path)


def _as_wildcard(part: Part) -> Part:
    return Wildcard(part) if isinstance(part, str) and part in ("*", "**") else part


def is_path(value: Any) -> bool:
    """Whether a key value is one path, and not a tree of paths."""
    return isinstance(value, (str, PartsSequence, DynamicPathBuilder))


def check_no_wildcards(parts: Sequence[Part]) -> None:
    """Raises `ValueError` that says where wildcards can be used."""
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
