"""Keeping only those parts of a tree that a path matches."""

from __future__ import annotations

from typing import Any, TypeAlias

from kauldron.kontext import nodes
from kauldron.kontext.describe import describe, position
from kauldron.kontext.errors import PathNotFoundError
from kauldron.kontext.missing_child import missing_child
from kauldron.kontext.path_arguments import PathLike, glob_parts
from kauldron.kontext.tree_search import find
from kauldron.path_grammar import Part, format_path

_Trie: TypeAlias = dict[Part, "_Trie | None"]
"""What to keep below a node; None: everything."""


def filter_by_path(obj: Any, path: PathLike) -> Any:
    """A tree with only what a path matches, and the nodes that lead there.

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

    kept: _Trie = {}
    for match in find(obj, parts, fail):
        if not match.parts:
            return obj
        _keep(kept, match.parts)
    if nodes.is_leaf(obj):  # only `**` gets here
        raise PathNotFoundError(
            f"'{text}' matches nothing in {describe(obj)}.", path=text
        )
    return _prune(obj, kept)


def _keep(trie: _Trie, parts: tuple[Part, ...]) -> None:
    for part in parts[:-1]:
        below = trie.setdefault(part, {})
        if below is None:  # kept whole already
            return
        trie = below
    trie[parts[-1]] = None


def _prune(node: Any, trie: _Trie | None) -> Any:
    if trie is None:
        return node
    order = {part: i for i, part in enumerate(nodes.children(node) or ())}
    parts = sorted(trie, key=lambda part: order.get(part, len(order)))
    found = [pair for part in parts for pair in nodes.select(node, part) or ()]
    kept = {part: _prune(child, trie[part]) for part, child in found}
    return nodes.with_only(node, kept)
