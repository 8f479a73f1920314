"""Sharding trees: which sharding belongs to which array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.sharding import Sharding
from jax.tree_util import KeyPath

ShardingTree: TypeAlias = Any
"""A prefix of a tree of arrays whose leaves are

* a `jax.sharding.Sharding`, for all arrays below,
* `None`: leave it to JAX,
* a callable, from the sub-tree of arrays to a `ShardingTree`.
"""


class ShardedLeaf(NamedTuple):
    """An array of a tree, where it is, and the sharding meant for it."""

    path: KeyPath
    value: Any
    sharding: Sharding | None

    @property
    def name(self) -> str:
        return _display(self.path)


def flatten_with_shardings(arrays: Any, shardings: ShardingTree) -> list[ShardedLeaf]:
    """Give each leaf of `arrays` its sharding, in the order of `jax.tree.leaves`.

    Args:
      arrays: Any tree. A `None` in it has no leaves, whatever its sharding.
      shardings: A sharding tree for it. Mappings match by their keys, of whatever type
        they are.

    Returns:
      The leaves.
    """
    leaves: list[ShardedLeaf] = []
    _flatten(arrays, shardings, (), leaves)
    return leaves


def _flatten(
    arrays: Any, shardings: ShardingTree, path: KeyPath, leaves: list[ShardedLeaf]
) -> None:
    if arrays is None:
        return
    if shardings is None or isinstance(shardings, Sharding):
        for below, value in jax.tree_util.tree_leaves_with_path(arrays):
            leaves.append(ShardedLeaf(path + below, value, shardings))
    elif isinstance(shardings, Callable):
        _flatten(arrays, shardings(arrays), path, leaves)
    else:
        sharding_of = dict(_children(shardings, path, "sharding tree"))
        children = _children(arrays, path, "arrays")
        _check_same_keys(path, dict(children), sharding_of)
        for key, child in children:
            _flatten(child, sharding_of[key], (*path, key), leaves)


def _children(node: Any, path: KeyPath, what: str) -> list[tuple[Any, Any]]:
    """The key and value of each direct child of a container."""
    found = jax.tree_util.tree_leaves_with_path(node, is_leaf=lambda x: x is not node)
    if found and not found[0][0]:
        raise ValueError(
            f"The sharding tree does not fit the arrays at {_display(path)}: the {what} "
            f"has {_describe(node)} there. A sharding tree is a prefix of the tree of "
            "arrays; its leaves are shardings, None, or callables."
        )
    return [(child_path[0], child) for child_path, child in found]


def _check_same_keys(path: KeyPath, arrays: dict, shardings: dict) -> None:
    if arrays.keys() != shardings.keys():
        raise ValueError(
            f"The sharding tree does not fit the arrays at {_display(path)}. Keys of "
            f"the arrays: {_names(arrays)}. Keys of the sharding tree: "
            f"{_names(shardings)}."
        )


def _names(keys: Any) -> list[str]:
    return [jax.tree_util.keystr((key,), simple=True) for key in keys]


def _display(path: KeyPath) -> str:
    return f"`{jax.tree_util.keystr(path)}`" if path else "the root"


def _describe(node: Any) -> str:
    shape = getattr(node, "shape", None)
    suffix = "" if shape is None else f" of shape {tuple(shape)}"
    return f"a {type(node).__name__}{suffix}"
