"""Assertions about trees."""

from __future__ import annotations

from typing import Any

import jax


def assert_trees_all_same_type(a: Any, b: Any) -> None:
    """Assert that two trees have the same structure and leaves of the same types.

    Args:
      a: A tree.
      b: Another tree.

    Example:
      >>> import numpy as np
      >>> assert_trees_all_same_type({"x": np.ones(2)}, {"x": np.zeros(3)})
    """
    structure_a, structure_b = jax.tree.structure(a), jax.tree.structure(b)
    assert structure_a == structure_b, f"Different trees: {structure_a}, {structure_b}"
    leaves = zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b))
    for (path, leaf_a), leaf_b in leaves:
        assert type(leaf_a) is type(leaf_b), (
            f"Different types at {jax.tree_util.keystr(path)}: "
            f"{type(leaf_a)}, {type(leaf_b)}"
        )
