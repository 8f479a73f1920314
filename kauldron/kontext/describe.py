"""Short descriptions of values and of what they contain, for error messages."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from kauldron.kontext import nodes
from kauldron.kontext.array_items import shape_and_dtype
from kauldron.path_grammar import Part, format_part, format_path

_MAX_NAMES = 20
_MAX_COMPARED = 200
_MAX_LINES = 200


def describe(value: Any) -> str:
    """The type of a value; for arrays dtype and shape, as in `float32[8,3]`.

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
    """The names that can follow in a path, with the value (None if not known)."""
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
    """Comma-separated names, at most about twenty, with what they hold."""
    shown = [
        f"{name}: {describe(value)}" if with_types and value is not None else name
        for name, value in list(names.items())[:_MAX_NAMES]
    ]
    if len(names) > _MAX_NAMES:
        shown.append(f"... ({len(names) - _MAX_NAMES} more)")
    return ", ".join(shown) or "none"


def closest(name: Any, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like `name`, if one does."""
    if not isinstance(name, str):
        return None

    def difference_in_length(candidate: str) -> int:
        return abs(len(candidate) - len(name))

    # Comparing is slow: with thousands of names, only those of similar length.
    compared = heapq.nsmallest(_MAX_COMPARED, candidates, key=difference_in_length)
    found = difflib.get_close_matches(name, compared, n=1)
    return found[0] if found else None


def position(parts: Sequence[Part]) -> str:
    """Where a node is: `'enc' -> 'block0'`."""
    return " -> ".join(map(repr, parts)) or "the root"


def structure(tree: Any) -> str:
    """All leaves of a tree with their types, one per line."""
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
