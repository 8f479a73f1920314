"""Searching a tree with glob paths: what they match, and the tree with only that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron.kontext import lookup, nodes
from kauldron.kontext.errors import PathNotFoundError, describe, missing_child, position
from kauldron.kontext.nodes import Trie, as_trie, find
from kauldron.kontext.paths import Path, PathLike, concrete_parts, glob_parts
from kauldron.path_grammar import Part, format_path, matches


def iter_by_path(obj: Any, path: PathLike) -> Iterator[tuple[Path, Any]]:
    """Yield the values that a glob path matches, each with its concrete path.

    Branches that do not have what the path asks for are passed over.

    >>> params = {"enc": {"w": 1, "b": 2}, "dec": {"w": 3}}
    >>> list(iter_by_path(params, "*.w"))
    [(enc.w, 1), (dec.w, 3)]

    Args:
      obj: Any tree.
      path: A path, with or without wildcards.

    Yields:
      Path and value, a node before what is below it.
    """
    for match in find(obj, glob_parts(path), _pass_over, _select_any):
        yield Path._from_valid(match.parts), match.node


def _pass_over(parts: tuple[Part, ...], node: Any, part: Part) -> None:
    del parts, node, part


def _select_any(node: Any, part: Part) -> list[tuple[Part, Any]] | None:
    found = nodes.select(node, part)
    if found is None:
        value = lookup.child(node, part)
        found = None if value is lookup.MISSING else [(part, value)]
    return found


def path_matches(path: PathLike, glob: PathLike) -> bool:
    """Return whether a path is one that a glob path stands for. Needs no tree.

    >>> path_matches("enc.layers[0].bias", "enc.**.bias")
    True

    Args:
      path: A path without wildcards.
      glob: A path in which `*` stands for one part and `**` for any number of them.
    """
    return matches(concrete_parts(path), glob_parts(glob))


def filter_by_path(obj: Any, path: PathLike) -> Any:
    """Return a tree with only what a path matches, and the nodes that lead there.

    >>> params = {"enc": {"w": 1, "bias": 2}, "dec": {"bias": 3}}
    >>> filter_by_path(params, "**.bias")
    {'enc': {'bias': 2}, 'dec': {'bias': 3}}

    Args:
      obj: A tree of mappings and sequences. It is not changed.
      path: What to keep, with everything below it; wildcards are allowed. Each part
        must exist, except the one after `**`, which may be absent.

    Returns:
      A tree of the same types, with shared leaves: mappings lack the other keys,
      sequences close up, named tuples and dataclasses become dicts unless they are
      kept whole. Empty if `**` found nothing.

    Raises:
      KeyError: A part does not exist.
    """
    parts = glob_parts(path)
    text = format_path(parts)

    def fail(at: tuple[Part, ...], node: Any, part: Part) -> None:
        prefix = f"Cannot filter by '{text}': "
        if not nodes.is_leaf(node):
            raise missing_child(text, at, node, part, prefix=prefix)
        raise PathNotFoundError(
            f"{prefix}the leaf in {position(at)} ({describe(node)}) has no children.",
            path=text,
            failed_part=part,
            resolved_parts=at,
        )

    places: list[tuple[Part, ...]] = []
    for match in find(obj, parts, fail):
        if not match.parts:
            return obj
        places.append(match.parts)
    if nodes.is_leaf(obj):  # only `**` gets here
        raise PathNotFoundError(
            f"'{text}' matches nothing in {describe(obj)}.", path=text
        )
    return _prune(obj, as_trie(places))


def _prune(node: Any, trie: Trie | None) -> Any:
    if trie is None:
        return node
    order = {part: i for i, part in enumerate(nodes.children(node) or ())}
    parts = sorted(trie, key=lambda part: order.get(part, len(order)))
    found = [pair for part in parts for pair in nodes.select(node, part) or ()]
    kept = {part: _prune(child, trie[part]) for part, child in found}
    return nodes.with_only(node, kept)
