"""Records are trees: walk them without jax.

A tree is made of dicts (any mapping), lists, tuples, named tuples and `None`;
everything else is a leaf, except the containers that were registered with jax.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with `fn` applied to each leaf; mappings become plain dicts.

    >>> map_leaves(lambda x: x + 1, {"a": [1, (2, None)]})
    {'a': [2, (3, None)]}
    """
    if type(tree) is np.ndarray:  # first, because it is asked for every batch
        return fn(tree)
    if isinstance(tree, (dict, Mapping)):  # dict first: it is much faster
        return {key: map_leaves(fn, value) for key, value in tree.items()}
    if tree is None:
        return None
    if isinstance(tree, list | tuple):
        return rebuild_sequence(tree, [map_leaves(fn, value) for value in tree])
    node = registered_node(tree)
    if node is not None:
        children, rebuild = node
        return rebuild([map_leaves(fn, child) for child in children])
    return fn(tree)


def leaves_with_paths(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its dotted path, in order; `None` holds nothing.

    >>> list(leaves_with_paths({"a": [1, 2], "b": {"c": 3}}))
    [('a[0]', 1), ('a[1]', 2), ('b.c', 3)]
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves_with_paths(value, join(path, key))
    elif tree is None:
        return
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from leaves_with_paths(value, f"{path}[{i}]")
    else:
        node = registered_node(tree)
        if node is None:
            yield path, tree
            return
        for i, value in enumerate(node[0]):
            yield from leaves_with_paths(value, f"{path}[{i}]")


def join(path: str, key: Any) -> str:
    """The path of a field below `path`."""
    return f"{path}.{key}" if path else str(key)


def rebuild_sequence(like: list | tuple, values: list) -> Any:
    """A list, tuple or named tuple of the type of `like`."""
    if type(like) is list:
        return values
    if hasattr(like, "_fields"):
        return type(like)(*values)
    return type(like)(values)


def registered_node(tree: Any) -> tuple[list, Callable[[list], Any]] | None:
    """Children and constructor of a container that jax knows, `None` for a leaf."""
    if isinstance(tree, _PLAIN_LEAVES) or "jax" not in sys.modules:
        return None
    tree_util = sys.modules["jax"].tree_util
    children, structure = tree_util.tree_flatten(tree, is_leaf=lambda x: x is not tree)
    if tree_util.treedef_is_leaf(structure):
        return None
    return children, structure.unflatten


_PLAIN_LEAVES = (np.ndarray, np.generic, int, float, complex, str, bytes)


def copy_record(record: Any) -> Any:
    """A record whose containers and arrays belong to nobody else."""
    if type(record) is dict:  # the usual case, without the detour
        return {
            key: value.copy()
            if type(value) is np.ndarray
            else value
            if type(value) in _SCALARS
            else copy_record(value)
            for key, value in record.items()
        }
    return map_leaves(_copy_leaf, record)


_SCALARS = frozenset((int, float, bool, str, bytes))


def _copy_leaf(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def has_shape_and_dtype(leaf: Any) -> bool:
    """Whether a leaf is an array, or stands for one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def describe(tree: Any) -> str:
    """Keys, dtypes and shapes of a record, for messages.

    >>> describe({"image": np.zeros((2, 3), np.uint8), "label": 3})
    '{image: uint8[2,3], label: int}'
    """
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list | tuple):
        inside = ", ".join(describe(value) for value in tree[:8])
        inside += ", ..." if len(tree) > 8 else ""
        return f"[{inside}]" if isinstance(tree, list) else f"({inside})"
    shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
    if shape is None or dtype is None:
        return type(tree).__name__
    return f"{dtype}[{','.join(map(str, shape))}]"
