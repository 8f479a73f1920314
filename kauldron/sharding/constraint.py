"""Constrain the sharding of arrays, inside and outside of jit."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax.extend import source_info_util

from kauldron.sharding.shape_structs import replace_shape_dtype_struct
from kauldron.sharding.tree import ShardingTree, flatten_with_shardings

_Tree = TypeVar("_Tree")

# Errors of JAX point to the caller of this module.
source_info_util.register_exclusion(__file__)


def with_sharding_constraint(x: _Tree, shardings: ShardingTree) -> _Tree:
    """Constrain the sharding of the arrays in `x`.

    Args:
      x: A tree of arrays (also traced ones) and `jax.ShapeDtypeStruct`s.
      shardings: A prefix of that tree. `None` leaves the arrays below unchanged.

    Returns:
      The tree with constrained arrays. Outside of jit the data has been moved; structs
      have their `sharding` set.

    Example:
      >>> import jax.numpy as jnp
      >>> from kauldron import kd
      >>> batch = {"image": jnp.ones((8, 3)), "label": jnp.ones(8)}
      >>> shardings = {"image": kd.sharding.FIRST_DIM, "label": None}
      >>> batch = with_sharding_constraint(batch, shardings)
      >>> batch["image"].sharding == kd.sharding.FIRST_DIM
      True
    """
    leaves = flatten_with_shardings(x, shardings)
    values: list[Any] = [leaf.value for leaf in leaves]
    arrays: list[int] = []
    for i, leaf in enumerate(leaves):
        if leaf.sharding is None:
            continue
        if isinstance(leaf.value, jax.ShapeDtypeStruct):
            values[i] = replace_shape_dtype_struct(leaf.value, sharding=leaf.sharding)
        else:
            arrays.append(i)
    if arrays:
        constrained = jax.lax.with_sharding_constraint(
            [values[i] for i in arrays], [leaves[i].sharding for i in arrays]
        )
        for i, value in zip(arrays, constrained):
            values[i] = value
    return jax.tree.unflatten(jax.tree.structure(x), values)
