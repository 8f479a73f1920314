"""Functions on plain JAX keys: raw `uint32` arrays and typed key arrays."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron.random.string_hash import hash_to_uint32

# Words in a raw key: 2 for threefry, 4 for rbg.
_RAW_KEY_SIZES = (2, 4)


def is_typed(key: Any) -> bool:
    """Whether this is an array of new-style keys (`jax.random.key`)."""
    dtype = getattr(key, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def is_raw(key: Any) -> bool:
    """Whether this has the form of one or several old-style keys."""
    return (
        getattr(key, "dtype", None) == np.uint32
        and len(key.shape) >= 1
        and key.shape[-1] in _RAW_KEY_SIZES
    )


def batch_shape(key: Any) -> tuple[int, ...]:
    """Shape of the batch of keys; `()` for a single one."""
    return tuple(key.shape) if is_typed(key) else tuple(key.shape[:-1])


def from_seed(seed: Any, *, impl: str | None) -> jax.Array | None:
    """An old-style key for an integer seed, or None if `seed` is not an integer."""
    if isinstance(seed, bool):
        return None
    if isinstance(seed, jax.Array | np.ndarray):  # tracers included
        if seed.ndim != 0 or not jnp.issubdtype(seed.dtype, jnp.integer):
            return None
    else:
        try:
            seed = operator.index(seed)
        except TypeError:
            return None
    return jax.random.PRNGKey(seed, impl=impl)


def fold_in(key: Any, data: Any) -> jax.Array:
    """`jax.random.fold_in` that also takes strings."""
    if isinstance(data, str):
        data = np.uint32(hash_to_uint32(data))
    return jax.random.fold_in(key, data)


def as_seed(key: Any) -> int:
    """32 random bits of a concrete key as a Python integer."""
    if isinstance(key, jax.core.Tracer):
        raise TypeError(
            "A key can only become a Python integer outside of jit, vmap and other JAX "
            f"transformations, but this one is traced: {key}. Make the seed before the "
            "traced function and pass it in, or draw the random bits with "
            "`jax.random.bits(key)`."
        )
    return int(jax.random.bits(key))
