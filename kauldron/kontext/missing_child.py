"""The error for a child that a node was expected to have."""

from __future__ import annotations

from typing import Any

from kauldron.kontext import nodes
from kauldron.kontext.describe import closest, describe, list_names, names_in, position
from kauldron.kontext.errors import (
    PathIndexError,
    PathKeyTypeError,
    PathNotFoundError,
)
from kauldron.path_grammar import Part


def missing_child(
    path: str, parts: tuple[Part, ...], node: Any, part: Part, *, prefix: str
) -> PathNotFoundError:
    """The error to raise where `node`, at `parts`, has no `part`.

    Args:
      path: The whole path that was asked for.
      parts: Where `node` is.
      node: A node that can have children.
      part: What it does not have.
      prefix: First words of the message.
    """
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
    nearest = closest(part, names)
    if nearest is not None:
        message += f" Did you mean {nearest!r}?"
    return error_type(
        message,
        path=path,
        failed_part=part,
        resolved_parts=parts,
        available=list(names),
    )
