"""Random keys in the forms that users have, and the streams made of them."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Words of a raw key: 2 for threefry, 4 for rbg.
_RAW_KEY_SHAPES = ((2,), (4,))

_ACCEPTED = (
    "an integer seed, a single JAX key (raw `jax.random.PRNGKey(0)` or typed "
    "`jax.random.key(0)`), a `kd.random.PRNGKey`, or a dict from stream to one of these"
)


def init_rngs(rng: Any, streams: tuple[str, ...]) -> dict[str, jax.Array]:
    """Return the streams for flax's `init`: `params` gets the key itself."""
    if isinstance(rng, Mapping):
        return _named_rngs(rng, "init_bind")
    key = _as_key(rng, "init_bind")
    return {**_fold_in_names(key, streams), "params": key}


def call_rngs(rng: Any, streams: tuple[str, ...]) -> dict[str, jax.Array]:
    """Return the streams for calls: each folds its name into the key."""
    if isinstance(rng, Mapping):
        return _named_rngs(rng, "with_rng")
    return _fold_in_names(_as_key(rng, "with_rng"), streams)


@functools.partial(jax.jit, inline=True)
def next_rngs(rngs: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the key after each one."""
    return {name: jax.random.split(key, 1)[0] for name, key in rngs.items()}


def fold_in_name(key: jax.Array, name: str) -> jax.Array:
    """Fold a text into a key: by the first four bytes of its SHA-1, big-endian.

    >>> fold_in_name(jax.random.PRNGKey(0), "dropout")
    Array([1257701063, 4037336012], dtype=uint32)
    """
    digest = hashlib.sha1(name.encode("utf-8"), usedforsecurity=False).digest()
    return jax.random.fold_in(key, np.uint32(int.from_bytes(digest[:4], "big")))


def check_streams(streams: Any) -> tuple[str, ...]:
    """Return the names of streams as a tuple, or raise `TypeError`."""
    if isinstance(streams, str) or not all(isinstance(name, str) for name in streams):
        raise TypeError(
            f"`streams` is a tuple of names, such as ('dropout', 'noise'): {streams!r}."
        )
    return tuple(streams)


@functools.partial(jax.jit, inline=True, static_argnames="names")
def _fold_in_names(key: jax.Array, names: tuple[str, ...]) -> dict[str, jax.Array]:
    return {name: fold_in_name(key, name) for name in names}


def _named_rngs(rngs: Mapping[Any, Any], caller: str) -> dict[str, jax.Array]:
    for name in rngs:
        if not isinstance(name, str):
            raise TypeError(
                f"`{caller}` takes {_ACCEPTED}; the name of a stream is a str, not "
                f"{type(name).__name__}: {name!r}."
            )
    return {name: _as_key(key, caller) for name, key in rngs.items()}


def _as_key(value: Any, caller: str) -> jax.Array:
    value = getattr(value, "rng", value)  # a `kd.random.PRNGKey` holds its key there
    if _is_single_key(value):
        return jnp.asarray(value)
    if _is_seed(value):
        return jax.random.PRNGKey(value)
    form = type(value).__name__
    if hasattr(value, "dtype"):
        form += f" of dtype {value.dtype} and shape {value.shape}"
    raise TypeError(f"`{caller}` takes {_ACCEPTED}; not {form}: {value!r:.80}.")


def _is_single_key(value: Any) -> bool:
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return value.dtype == np.uint32 and value.shape in _RAW_KEY_SHAPES


def _is_seed(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, jax.Array | np.ndarray):  # traced ones too
        return value.shape == () and jnp.issubdtype(value.dtype, jnp.integer)
    try:
        operator.index(value)
    except TypeError:
        return False
    return True
