"""Paths without wildcards, and reading what they point to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kauldron.kontext import lookup, nodes
from kauldron.kontext.array_items import shape_and_dtype
from kauldron.kontext.assignment import set_by_path
from kauldron.kontext.describe import closest, describe, list_names, names_in, structure
from kauldron.kontext.errors import PathIndexError, PathNotFoundError
from kauldron.kontext.parts_sequence import PartsSequence
from kauldron.kontext.path_arguments import (
    PathLike,
    check_no_wildcards,
    concrete_parts,
)
from kauldron.path_grammar import Part, format_part, format_path


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
        """The value this path points to.

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

    def set_in(self, context: Any, value: Any) -> list[str]:
        """Overwrites what this path points to. See `set_by_path`."""
        return set_by_path(context, self, value)


def get_by_path(obj: Any, path: PathLike | None, default: Any = ...) -> Any:
    """The value that a path points to.

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
    value, reached = lookup.walk(obj, parts)
    if reached == len(parts):
        return value
    if default is not ...:
        return default
    raise not_found(parts, reached, value)


def not_found(parts: tuple[Part, ...], reached: int, value: Any) -> PathNotFoundError:
    """The error for a path of which only the first `reached` parts lead somewhere."""
    path, failed = format_path(parts), parts[reached]
    names = names_in(value)
    message = f"Path '{path}' not found: {explain_miss(parts, reached, value)}"
    nearest = closest(failed, names)
    if nearest is not None:
        message += f"\nDid you mean {nearest!r}?"
    out_of_range = _is_index(failed) and _is_indexed(value)
    return (PathIndexError if out_of_range else PathNotFoundError)(
        message,
        path=path,
        failed_part=failed,
        resolved_parts=parts[:reached],
        available=list(names),
    )


def _is_index(part: Part) -> bool:
    return nodes.is_index(part) or isinstance(part, tuple)


def _is_indexed(value: Any) -> bool:
    return nodes.is_sequence(value) or shape_and_dtype(value) is not None


def explain_miss(parts: tuple[Part, ...], reached: int, value: Any) -> str:
    """How far a path leads, and what there is instead of the next part."""
    where = f"'{format_path(parts[:reached])}'" if reached else "the root"
    failed = parts[reached]
    missing = repr(failed) if isinstance(failed, str) else format_part(failed)
    text = f"{where} ({describe(value)}) has no {missing}."
    if _is_indexed(value) and not nodes.is_named_tuple(value):
        return text  # the length, or the shape, says it all
    return f"{text}\nAvailable: {list_names(names_in(value))}"
