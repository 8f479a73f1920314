"""Asking which places a path with wildcards stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron.kontext import lookup, nodes
from kauldron.kontext.path_arguments import PathLike, concrete_parts, glob_parts
from kauldron.kontext.paths import Path
from kauldron.kontext.tree_search import find
from kauldron.path_grammar import Part, matches


def iter_by_path(obj: Any, path: PathLike) -> Iterator[tuple[Path, Any]]:
    """The values that a glob path matches, each with its concrete path.

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
    """Whether a path is one that a glob path stands for. Needs no tree.

    >>> path_matches("enc.layers[0].bias", "enc.**.bias")
    True

    Args:
      path: A path without wildcards.
      glob: A path in which `*` stands for one part and `**` for any number of them.
    """
    return matches(concrete_parts(path), glob_parts(glob))
