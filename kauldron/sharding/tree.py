"""Sharding trees: which sharding belongs to which array, and giving it to them.

Host data is put on the devices of all processes, traced values are constrained.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import Jaxpr, Literal
from jax.sharding import NamedSharding, Sharding
from jax.tree_util import KeyPath

from kauldron.errors import a_type
from kauldron.sharding import device_mesh

# Errors of JAX point to the caller of this module.
source_info_util.register_exclusion(__file__)

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

    A `None` in `arrays` has no leaves, whatever its sharding. Mappings match by their
    keys, of whatever type they are.
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
    elif isinstance(shardings, Callable) and jax.tree_util.all_leaves([shardings]):
        _flatten(arrays, shardings(arrays), path, leaves)
    else:
        sharding_of = dict(_children(shardings, path, "sharding tree"))
        children = _children(arrays, path, "arrays")
        _check_same_keys(path, dict(children), sharding_of)
        for key, child in children:
            _flatten(child, sharding_of[key], (*path, key), leaves)


def _children(node: Any, path: KeyPath, what: str) -> list[tuple[Any, Any]]:
    """Return the key and value of each direct child of a container."""
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
    return f"{a_type(node)}{suffix}"


#
# Data of the host
#


def device_put(arrays: Any, sharding: ShardingTree = None) -> Any:
    """Make global JAX arrays from the data of this process.

    With several processes, data sharded along its first dimension means that each
    process holds its own part, and replicated data that all hold the same.

    Args:
      arrays: A tree of NumPy or JAX arrays and Python numbers. Not for traced values.
      sharding: A sharding, or a sharding tree. `None` stands for `FIRST_DIM`.

    Returns:
      The same tree of JAX arrays.

    Example:
      >>> from kauldron import kd
      >>> batch = {"image": np.ones((8, 28, 28)), "label": np.zeros(8, int)}
      >>> kd.sharding.device_put(batch, kd.sharding.FIRST_DIM)["image"].shape
      (8, 28, 28)
    """
    default: Sharding = device_mesh.FIRST_DIM
    leaves = flatten_with_shardings(arrays, default if sharding is None else sharding)
    leaves = [
        leaf if leaf.sharding is not None else leaf._replace(sharding=default)
        for leaf in leaves
    ]
    values = [_as_array(leaf) for leaf in leaves]
    shardings: list[Any] = [leaf.sharding for leaf in leaves]
    for leaf, value in zip(leaves, values):
        _check_divisible(leaf, value.shape)
    if jax.process_count() == 1:
        placed = jax.device_put(values, shardings)
    else:
        placed = [_put_process_data(v, s) for v, s in zip(values, shardings)]
    return jax.tree.unflatten(jax.tree.structure(arrays), placed)


def local_to_global_shape(
    shape: tuple[int, ...], *, sharding: Sharding
) -> tuple[int, ...]:
    """Return the shape of the whole array, of which each process holds `shape`.

    Args:
      shape: Shape of this process's part.
      sharding: A `NamedSharding` that is replicated, or shards the first dimension.

    Returns:
      The shape, its first dimension times the number of processes if it is sharded.
    """
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            "Data of several processes needs a NamedSharding, not "
            f"{type(sharding).__name__}: {sharding}."
        )
    first, *others = (*sharding.spec, None)
    if any(axes for axes in others):
        raise ValueError(
            "Data can only be sharded on the first dimension, because each process "
            f"holds whole examples; got the spec {sharding.spec}."
        )
    if not first:
        return tuple(shape)
    if not shape:
        raise ValueError(f"A scalar has no dimension to shard by {sharding.spec}.")
    if shape[0] is None:  # a batch whose size is not known
        return tuple(shape)
    return (shape[0] * jax.process_count(), *shape[1:])


def _put_process_data(value: Any, sharding: Sharding) -> jax.Array:
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return jax.device_put(value, sharding)
    shape = local_to_global_shape(value.shape, sharding=sharding)
    with jax.transfer_guard_host_to_device("allow"):  # asked for, as in `device_put`
        return jax.make_array_from_process_local_data(
            sharding, np.asarray(value), shape
        )


def _as_array(leaf: ShardedLeaf) -> jax.Array | np.ndarray:
    value = leaf.value
    if isinstance(value, numbers.Number | np.generic):
        value = np.asarray(value)
    dtype = getattr(value, "dtype", None)
    kinds = (np.number, np.bool_, jax.dtypes.prng_key)
    if dtype is None or not any(jnp.issubdtype(dtype, kind) for kind in kinds):
        found = type(value).__name__ if dtype is None else f"an array of {dtype}"
        raise TypeError(
            f"{leaf.name} cannot be put on a device: it is {found}, not numbers. Drop "
            "the key in the data pipeline, for example with "
            "`kd.data.Elements(drop=[...])`."
        )
    return value


def _check_divisible(leaf: ShardedLeaf, shape: tuple[int, ...]) -> None:
    sharding: Any = leaf.sharding
    try:
        if jax.process_count() > 1:
            shape = local_to_global_shape(shape, sharding=sharding)
        sharding.shard_shape(shape)
    except (ValueError, IndexError) as error:
        if not isinstance(sharding, NamedSharding):
            raise
        num_devices = sharding.mesh.size
        raise ValueError(
            f"{leaf.name} of shape {tuple(shape)} cannot be divided among {num_devices} "
            f"devices by {sharding.spec}. The first dimension, normally the batch size, "
            f"has to be a multiple of {num_devices}: change `batch_size`. What is not "
            "per example can be replicated (`kd.sharding.REPLICATED`)."
        ) from error


#
# Constraints, inside and outside jit
#


_Tree = TypeVar("_Tree")


def with_sharding_constraint(x: _Tree, shardings: ShardingTree) -> _Tree:
    """Constrain the sharding of the arrays in `x`.

    Args:
      x: A tree of arrays (also traced ones) and `jax.ShapeDtypeStruct`s.
      shardings: A prefix of that tree. `None` leaves the arrays below unchanged.

    Returns:
      The tree with constrained arrays. Outside jit the data has been moved; structs
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
    return jax.tree.unflatten(jax.tree.structure(x), map(_constrained, leaves))


def _constrained(leaf: ShardedLeaf) -> Any:
    if leaf.sharding is None:
        return leaf.value
    if isinstance(leaf.value, jax.ShapeDtypeStruct):
        return replace_shape_dtype_struct(leaf.value, sharding=leaf.sharding)
    return jax.lax.with_sharding_constraint(leaf.value, leaf.sharding)


#
# Shardings of a function's results, without running it
#


def eval_shape_with_sharding(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Evaluate shapes like `jax.eval_shape`, with their shardings.

    Compiles `fn` only if there are several devices and some result was not given a
    sharding by a constraint inside `fn`.

    Args:
      fn: Function of arrays.
      *args: Arrays or `jax.ShapeDtypeStruct`s.
      **kwargs: Likewise.

    Returns:
      The tree of results as `jax.ShapeDtypeStruct`s.
    """
    traced = jax.jit(fn).trace(*args, **kwargs)
    structs, structure = jax.tree.flatten(traced.out_info)
    if jax.device_count() == 1:
        shardings: list[Any] = [device_mesh.REPLICATED] * len(structs)
    else:
        shardings = _constraints_of_results(traced.jaxpr.jaxpr)
        if None in shardings:
            compiled = traced.lower().compile()
            shardings = jax.tree.leaves(compiled.output_shardings)
    return jax.tree.unflatten(
        structure,
        [replace_shape_dtype_struct(s, sharding=x) for s, x in zip(structs, shardings)],
    )


def _constraints_of_results(jaxpr: Jaxpr) -> list[Sharding | None]:
    """Return the sharding that a constraint gave to each result, where one did."""
    made_by = {}
    for equation in jaxpr.eqns:
        for position, variable in enumerate(equation.outvars):
            made_by[variable] = (equation, position)
    return [_constraint_of(variable, made_by) for variable in jaxpr.outvars]


def _constraint_of(variable: Any, made_by: dict[Any, Any]) -> Sharding | None:
    if isinstance(variable, Literal) or variable not in made_by:
        return None
    equation, position = made_by[variable]
    if equation.primitive.name == "sharding_constraint":
        is_partial = equation.params.get("unconstrained_dims")
        return None if is_partial else equation.params["sharding"]
    if equation.primitive.name in ("jit", "pjit"):
        return _constraints_of_results(equation.params["jaxpr"].jaxpr)[position]
    return None


#
# `jax.ShapeDtypeStruct` and what looks like one
#


def replace_shape_dtype_struct(
    struct: jax.ShapeDtypeStruct, **changes: Any
) -> jax.ShapeDtypeStruct:
    """Return a copy with another `shape`, `dtype`, `sharding` or `weak_type`."""
    kwargs = {
        "shape": struct.shape,
        "dtype": struct.dtype,
        "sharding": struct.sharding,
        "weak_type": struct.weak_type,
    }
    # `struct.update` ignores misspelt names, and refuses a sharding after a layout.
    return jax.ShapeDtypeStruct(**(kwargs | changes))


def nbytes(array: Any) -> int:
    """Return the size in bytes of an array, a tracer or a `ShapeDtypeStruct`."""
    shape = np.shape(array)
    dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    return math.prod(shape) * dtype.itemsize
