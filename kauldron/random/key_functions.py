"""Functions on keys of either kind, and the mirror of `jax.random`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from kauldron.random import raw_keys
from kauldron.random.prng_key import KEY_RESULTS, PRNGKey, unwrap, wrap

_Key = TypeVar("_Key")


def fold_in_str(key: _Key, data: str) -> _Key:
    """Fold a string into a key.

    The number folded in is fixed for ever (see `string_hash`), so the result is the
    same in all processes and Python versions. Works inside jit.

    Args:
      key: A raw or typed JAX key, or a `PRNGKey`.
      data: The text.

    Returns:
      A key of the kind that was given.

    Example:
      >>> import jax
      >>> fold_in_str(jax.random.PRNGKey(0), "param")
      Array([3377459867,  191051718], dtype=uint32)
    """
    if not isinstance(data, str):
        raise TypeError(
            f"fold_in_str() folds in a string, not {type(data).__name__}: {data!r:.80}. "
            "For an integer use `jax.random.fold_in(key, number)`."
        )
    return _like(key, raw_keys.fold_in(unwrap(key), data))


def random_seed(key: Any) -> int:
    """32 random bits of a key as a Python integer, to seed libraries other than JAX.

    Args:
      key: A concrete raw or typed JAX key, or a `PRNGKey`. Under jit and other
        transformations there are no bits to look at: `TypeError`.

    Returns:
      An integer from 0 to `2**32 - 1`.

    Example:
      >>> 0 <= random_seed(PRNGKey(0)) < 2**32
      True
    """
    return raw_keys.as_seed(unwrap(key))


def mirrored_function(name: str) -> Any:
    """The `jax.random` function of this name, taking a `PRNGKey` as well."""
    function = None if name.startswith("_") else getattr(jax.random, name, None)
    if not callable(function):
        raise AttributeError(f"module 'kauldron.random' has no attribute {name!r}")
    return _mirror(name, function)


def list_names() -> list[str]:
    """What `dir(kd.random)` shows."""
    own = ["PRNGKey", "fold_in_str", "random_seed"]
    return sorted({*own, *(name for name in dir(jax.random) if name[0] != "_")})


def _like(given: Any, result: Any) -> Any:
    return wrap(result) if isinstance(given, PRNGKey) else result


@functools.cache
def _mirror(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def mirrored(*args: Any, **kwargs: Any) -> Any:
        key = args[0] if args else kwargs.get("key")
        plain_kwargs = {key: unwrap(value) for key, value in kwargs.items()}
        result = function(*map(unwrap, args), **plain_kwargs)
        return _like(key, result) if name in KEY_RESULTS else result

    return mirrored
