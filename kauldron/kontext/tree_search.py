"""Walking a tree along a pattern; what to do where it fails is the caller's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from kauldron.kontext import nodes
from kauldron.kontext.parts_sequence import comparable
from kauldron.path_grammar import Part, Wildcard


class Match(NamedTuple):
    """A node that a pattern stands for.

    Attributes:
      parts: The concrete path to it.
      node: The node.
      lenient: Whether the pattern so far ends with `**`, or with `**` and `*`. What
        follows then need not exist below every such node.
    """

    parts: tuple[Part, ...]
    node: Any
    lenient: bool


OnMissing: TypeAlias = Callable[[tuple[Part, ...], Any, Part], None]
"""Called with path, node and part where a part must exist and does not."""

Select: TypeAlias = Callable[[Any, Part], list[tuple[Part, Any]] | None]


def find(
    tree: Any,
    pattern: tuple[Part, ...],
    on_missing: OnMissing,
    select: Select = nodes.select,
) -> Iterator[Match]:
    """The nodes that the pattern stands for: a node first, then what is below it.

    A part must exist wherever the parts before it lead. Only the first one after `**`
    may be absent: `**` looks for the places that have it.

    Args:
      tree: The tree to look into.
      pattern: Parts, with or without wildcards.
      on_missing: Called where a part must exist and does not. May raise; if it
        returns, that branch has no match.
      select: Gives the children that a part without wildcards leads to.
    """
    expanded: set[tuple[Any, int]] = set()
    several = sum(part is Wildcard.DOUBLE_STAR for part in pattern) > 1

    def search(
        parts: tuple[Part, ...], node: Any, at: int, lenient: bool
    ) -> Iterator[Match]:
        if at == len(pattern):
            yield Match(parts, node, lenient)
            return
        part = pattern[at]
        if part is Wildcard.DOUBLE_STAR:
            if several:  # they can meet at the same place
                place = (comparable(parts), at)
                if place in expanded:
                    return
                expanded.add(place)
            yield from search(parts, node, at + 1, True)
            found, following, lenient = _items(nodes.children(node)), at, True
        elif part is Wildcard.STAR:
            found, following = _items(nodes.children(node)), at + 1
        else:
            found, following = select(node, part), at + 1
        if found is None:
            if not lenient:
                on_missing(parts, node, part)
            return
        lenient = lenient and isinstance(part, Wildcard)
        for key, child in found:
            yield from search((*parts, key), child, following, lenient)

    return search((), tree, 0, False)


def _items(children: dict[Any, Any] | None) -> list[tuple[Part, Any]] | None:
    return None if children is None else list(children.items())
