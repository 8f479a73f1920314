"""Trees of dicts, lists and tuples: what can be read without anybody's classes."""

from __future__ import annotations

from typing import Any

import jax


def to_plain(tree: Any) -> Any:
    """The tree with every container of another type replaced by a dict.

    Args:
      tree: Any pytree; named tuples and registered dataclasses become dicts by the names
        of their fields.

    Returns:
      The same leaves in dicts, lists and tuples.

    Example:
      >>> import collections
      >>> Point = collections.namedtuple("Point", ["x", "y"])
      >>> to_plain([Point(1, (2, None))])
      [{'x': 1, 'y': (2, None)}]
    """
    if type(tree) in (list, tuple):
        return type(tree)(map(to_plain, tree))
    children = jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda node: node is not tree
    )
    if children and not children[0][0]:  # no container
        return tree
    if not children and tree is None:
        return None
    return {
        jax.tree_util.keystr(path, simple=True): to_plain(child)
        for path, child in children
    }
