"""Put host data on the devices of all processes."""

from __future__ import annotations

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding

from kauldron.sharding import device_mesh
from kauldron.sharding.tree import ShardedLeaf, ShardingTree, flatten_with_shardings


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
