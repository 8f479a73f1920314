"""The error that reports all missing keys of an object, and what was meant."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kauldron.kontext import nodes
from kauldron.kontext.describe import closest, list_names, names_in
from kauldron.kontext.errors import MissingKeysError
from kauldron.kontext.paths import explain_miss
from kauldron.path_grammar import Part, format_part, format_path

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


def unfilled_fields(context: Any) -> Mapping[Any, str]:
    """The fields of a context that hold nothing yet, and when they are filled.

    A context class declares them with a method `__kontext_unfilled__() -> dict`. Keys
    that start with such a field are missing, even if the field can be read.
    """
    method = getattr(type(context), "__kontext_unfilled__", None)
    return {} if method is None else method(context)


def missing_keys_error(
    context: Any,
    missing: Sequence[MissingKey],
    unfilled: Mapping[Any, str],
    prefix: str = "",
) -> MissingKeysError:
    """One error for all missing keys.

    Args:
      context: What the paths point into.
      missing: The keys.
      unfilled: Fields of the context that hold nothing yet, and when they do.
      prefix: First words of the message.
    """
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


# ------------------------------------------------------------------------------------
# What was meant
# ------------------------------------------------------------------------------------


def _suggestions(context: Any, key: MissingKey) -> list[str]:
    found = [*_sibling(key), *_same_ending(context, key.parts)]
    unique = dict.fromkeys(format_path(parts) for parts in found)
    return list(unique)[:_MAX_SUGGESTIONS]


def _sibling(key: MissingKey) -> Iterator[tuple[Part, ...]]:
    """The path with the nearest name instead of the one that does not exist."""
    nearest = closest(key.parts[key.reached], names_in(key.value))
    if nearest is not None:
        yield (*key.parts[: key.reached], nearest)


def _same_ending(context: Any, parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Existing paths that end like the one asked for; the longest common end first."""
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
    """The first nodes of a tree, those near the root first."""
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
