"""Errors for paths and keys that lead nowhere, and the words that explain them."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kauldron.errors import ReadableKeyError, did_you_mean, nearest
from kauldron.kontext import nodes
from kauldron.kontext.nodes import shape_and_dtype
from kauldron.path_grammar import Part, format_part, format_path

if TYPE_CHECKING:
    from kauldron.kontext.paths import Path


class PathNotFoundError(ReadableKeyError):
    """A path does not lead to a value.

    Attributes:
      path: Text of the path that was asked for.
      failed_part: The part that could not be followed.
      resolved_parts: The parts before it, which could be followed.
      available: The names that exist where the path failed.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        failed_part: Any = None,
        resolved_parts: tuple[Part, ...] = (),
        available: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.path = path
        self.failed_part = failed_part
        self.resolved_parts = resolved_parts
        self.available = list(available)

    @property
    def resolved(self) -> Path:
        """The path up to the part that failed."""
        from kauldron.kontext.paths import Path  # Path raises this error itself

        # Keys of the user's dicts need not be valid parts: no check.
        return Path._from_valid(self.resolved_parts)


class PathIndexError(PathNotFoundError, IndexError):
    """An index of a path is out of range."""


class PathKeyTypeError(PathNotFoundError, TypeError):
    """A sequence is addressed with something that is not an index."""


class MissingKeysError(ReadableKeyError):
    """Keys of an object lead nowhere in the context.

    Attributes:
      names: The names of these keys.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = list(names)


#
# Why a path leads nowhere
#


def not_found(parts: tuple[Part, ...], reached: int, value: Any) -> PathNotFoundError:
    """Return the error for a path that can be followed for `reached` parts only."""
    path, failed = format_path(parts), parts[reached]
    names = names_in(value)
    message = f"Path '{path}' not found: {explain_miss(parts, reached, value)}"
    message += _did_you_mean(failed, names, before="\n")
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
    """Return how far a path leads, and what there is instead of the next part."""
    where = f"'{format_path(parts[:reached])}'" if reached else "the root"
    failed = parts[reached]
    missing = repr(failed) if isinstance(failed, str) else format_part(failed)
    text = f"{where} ({describe(value)}) has no {missing}."
    if _is_indexed(value) and not nodes.is_named_tuple(value):
        return text  # the length, or the shape, says it all
    return f"{text}\nAvailable: {list_names(names_in(value))}"


def missing_child(
    path: str, parts: tuple[Part, ...], node: Any, part: Part, *, prefix: str
) -> PathNotFoundError:
    """Return the error to raise where `node`, at `parts` of `path`, has no `part`."""
    names = names_in(node)
    where = f"in {position(parts)}"
    error_type = PathNotFoundError
    if nodes.is_sequence(node) and nodes.is_index(part):
        error_type = PathIndexError
        problem = f"index {part} is out of range {where}, a {describe(node)}."
    elif nodes.is_sequence(node) and not nodes.is_named_tuple(node):
        error_type = PathKeyTypeError
        problem = f"{part!r} is not an index {where}, a {describe(node)}."
    else:
        problem = f"key {part!r} not found {where}."
    message = (
        f"{prefix}{problem} Available keys: {list_names(names, with_types=False)}."
    )
    message += _did_you_mean(part, names)
    return error_type(
        message,
        path=path,
        failed_part=part,
        resolved_parts=parts,
        available=list(names),
    )


#
# Keys that lead nowhere: one error for all of an object
#


_MAX_SUGGESTIONS = 3
_MAX_VISITED = 500


class MissingKey(NamedTuple):
    """A key that leads nowhere.

    Attributes:
      name: Name of the key, such as `views.left`.
      parts: The path it holds.
      reached: How many of its parts lead somewhere.
      value: Where they lead.
    """

    name: str
    parts: tuple[Part, ...]
    reached: int
    value: Any


def missing_keys_error(
    context: Any,
    missing: Sequence[MissingKey],
    unfilled: Mapping[Any, str],
    prefix: str,
) -> MissingKeysError:
    """Return the error that tells for each key how far it leads, and what was meant."""
    lines = [f"{prefix}Invalid keys, which lead nowhere in the context:"]
    for key in missing:
        name = f"{key.name} = " if key.name else ""
        lines.append(f"- {name}'{format_path(key.parts)}'")
        lines += [f"    {line}" for line in _explain(context, key, unfilled)]
    return MissingKeysError("\n".join(lines), [key.name for key in missing])


def _explain(
    context: Any, key: MissingKey, unfilled: Mapping[Any, str]
) -> Iterator[str]:
    first = key.parts[0]
    if isinstance(first, str) and first in unfilled:
        yield f"`{first}` is empty here: {unfilled[first]}."
        return
    if key.reached == 0:
        names = list_names(names_in(context), with_types=False)
        asked = first if isinstance(first, str) else format_part(first)
        yield f"The context has no `{asked}`. Paths start with one of: {names}"
    else:
        yield from explain_miss(key.parts, key.reached, key.value).splitlines()
    suggestions = _suggestions(context, key)
    if suggestions:
        yield f"Did you mean: {', '.join(map(repr, suggestions))}?"


def _suggestions(context: Any, key: MissingKey) -> list[str]:
    found = [*_sibling(key), *_same_ending(context, key.parts)]
    unique = dict.fromkeys(format_path(parts) for parts in found)
    return list(unique)[:_MAX_SUGGESTIONS]


def _sibling(key: MissingKey) -> Iterator[tuple[Part, ...]]:
    """Yield the path with the nearest name instead of the one that does not exist."""
    asked = key.parts[key.reached]
    if isinstance(asked, str):
        for name in nearest(asked, names_in(key.value)):
            yield (*key.parts[: key.reached], name)


def _same_ending(context: Any, parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Yield existing paths that end like the one asked for, longest common end first."""
    by_length: dict[int, list[tuple[Part, ...]]] = collections.defaultdict(list)
    for place, node in _breadth_first(context):
        for length in range(len(parts), 0, -1):
            ending = parts[len(parts) - length :]
            if _exists(node, ending):
                by_length[length].append((*place, *ending))
                break
    for length in sorted(by_length, reverse=True):
        yield from by_length[length]


def _breadth_first(tree: Any) -> Iterator[tuple[tuple[Part, ...], Any]]:
    """Yield the first nodes of a tree, those near the root first."""
    queue: collections.deque[tuple[tuple[Part, ...], Any]]
    queue = collections.deque([((), tree)])
    for _ in range(_MAX_VISITED):
        if not queue:
            return
        place, node = queue.popleft()
        yield place, node
        children = (nodes.children(node) or {}).items()
        for part, child in itertools.islice(children, _MAX_VISITED):
            if len(queue) < _MAX_VISITED and not nodes.is_leaf(child):
                queue.append(((*place, part), child))


def _exists(node: Any, parts: Sequence[Part]) -> bool:
    for part in parts:
        found = nodes.select(node, part)
        if not found or len(found) != 1:
            return False
        node = found[0][1]
    return True


#
# Descriptions of values, and of what they contain
#


_MAX_NAMES = 20
_MAX_LINES = 200


def describe(value: Any) -> str:
    """Return the type of a value; for arrays dtype and shape, as in `float32[8,3]`.

    >>> describe([1, 2])
    'list of length 2'
    """
    array = shape_and_dtype(value)
    if array is not None:
        shape, dtype = array
        return f"{dtype}[{','.join(map(str, shape))}]"
    if nodes.is_sequence(value) and not nodes.is_named_tuple(value):
        return f"{type(value).__name__} of length {len(value)}"
    return type(value).__name__


def names_in(node: Any) -> dict[str, Any]:
    """Return the names that can follow in a path, each with its value or None."""
    children = nodes.children(node)
    if children is not None:
        return {_name(part): child for part, child in children.items()}
    instance = getattr(node, "__dict__", None)
    public = [*(instance if isinstance(instance, dict) else ()), *_properties(node)]
    return {
        name: (instance or {}).get(name) for name in public if not name.startswith("_")
    }


def _name(part: Part) -> str:
    return part if isinstance(part, str) else format_part(part)


def _properties(node: Any) -> list[str]:
    classes = type(node).__mro__
    return [n for cls in classes for n, v in vars(cls).items() if type(v) is property]


def list_names(names: dict[str, Any], *, with_types: bool = True) -> str:
    """Return names separated by commas, at most about twenty, with what they hold."""
    shown = [
        f"{name}: {describe(value)}" if with_types and value is not None else name
        for name, value in list(names.items())[:_MAX_NAMES]
    ]
    if len(names) > _MAX_NAMES:
        shown.append(f"... ({len(names) - _MAX_NAMES} more)")
    return ", ".join(shown) or "none"


def position(parts: Sequence[Part]) -> str:
    """Return where a node is: `'enc' -> 'block0'`."""
    return " -> ".join(map(repr, parts)) or "the root"


def structure(tree: Any) -> str:
    """Return all leaves of a tree with their types, one per line."""
    lines = list(_structure_lines(tree, (), set()))
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"... ({len(lines) - _MAX_LINES} more)"]
    return "\n".join(lines)


def _structure_lines(
    node: Any, parts: tuple[Part, ...], above: set[int]
) -> Iterable[str]:
    children = nodes.children(node)
    if not children or id(node) in above:
        yield f"{format_path(parts) or '(root)'}: {describe(node)}"
        return
    for part, child in children.items():
        yield from _structure_lines(child, (*parts, part), above | {id(node)})


def _did_you_mean(part: Part, names: Iterable[str], *, before: str = " ") -> str:
    text = did_you_mean(part, names) if isinstance(part, str) else ""
    return before + text.lstrip() if text else ""
