"""`PRNGKey`, a JAX key with methods, and functions on keys of either kind."""

from __future__ import annotations

import functools
import hashlib
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from kauldron.errors import did_you_mean
from kauldron.lazy_namespace import missing_name

# Functions of `jax.random` whose result is a key again.
KEY_RESULTS = frozenset({"split", "fold_in", "clone"})


class PRNGKey:
    """A JAX random key, or a batch of keys, with the functions of `jax.random` as methods.

    Args:
      seed_or_rng: An integer seed (Python, NumPy, or a JAX scalar, also a traced one),
        a JAX key (raw or typed, single or batched), or another `PRNGKey`.
      impl: Name of the random number generator, for integer seeds only.

    Attributes:
      rng: The plain JAX key, for functions that take nothing else.

    Example:
      >>> key = PRNGKey(0)
      >>> weights, noise = key.split()
      >>> weights.normal((2, 3)).shape
      (2, 3)
      >>> key.fold_in("dropout").randint((), 0, 100).dtype
      dtype('int32')
    """

    __slots__ = ("__weakref__", "rng")

    rng: Any

    def __init__(self, seed_or_rng: Any = 0, *, impl: str | None = None):
        object.__setattr__(self, "rng", _as_jax_key(seed_or_rng, impl))

    def split(self, n: int | tuple[int, ...] = 2) -> PRNGKey:
        """`n` new keys, as a batch that can be unpacked: `a, b = key.split()`."""
        return wrap(jax.random.split(self.rng, n))

    def fold_in(self, data: int | str | jax.Array) -> PRNGKey:
        """Return a new key that also depends on `data`."""
        return wrap(_fold_in(self.rng, data))

    def next(self) -> PRNGKey:
        """Return one new key."""
        return self.split(1)[0]

    def as_seed(self) -> int:
        """32 random bits as a Python integer, to seed what is not JAX."""
        return random_seed(self)

    # ------------------------------------------------------------------------------
    # A batch of keys is a sequence
    # ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._batch_shape()[0]

    def __bool__(self) -> bool:
        return True  # a key is a value, however long its batch is

    def __iter__(self) -> Iterator[PRNGKey]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> PRNGKey:
        indices = index if isinstance(index, tuple) else (index,)
        shape = self._batch_shape()
        if len(indices) > len(shape):
            raise IndexError(f"{len(indices)} indices for keys of shape {shape}.")
        for i, size in zip(indices, shape):
            _check_index(i, size)
        return wrap(self.rng[index])

    def _batch_shape(self) -> tuple[int, ...]:
        shape = self.rng.shape if _is_typed(self.rng) else self.rng.shape[:-1]
        if not shape:
            raise TypeError(
                "This PRNGKey is a single key: it has no length and cannot be iterated, "
                "unpacked or indexed. Use `key.split(n)` to get several keys."
            )
        return shape

    # ------------------------------------------------------------------------------
    # Otherwise it behaves like the array it wraps
    # ------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Protocols (pickle, copy, numpy, jax) ask for dunder names: those of the array
        # would make them treat this object as the array. `rng` is missing only while
        # an instance is being rebuilt.
        if name == "rng" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        try:
            return getattr(self.rng, name)
        except AttributeError:
            names = [] if name.startswith("_") else dir(type(self))
            raise AttributeError(
                f"PRNGKey has no attribute {name!r}: it is neither a function of "
                "`jax.random` that takes a key nor an attribute of the wrapped "
                f"array.{did_you_mean(name, names)}",
                name=name,  # Python adds no suggestion of its own
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"PRNGKey is immutable: cannot set {name!r}.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"PRNGKey is immutable: cannot delete {name!r}.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        data = jax.random.key_data(self.rng) if _is_typed(self.rng) else self.rng
        return np.array(np.asarray(data), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"PRNGKey({self.rng!r})"

    def __reduce__(self) -> tuple[Callable[..., PRNGKey], tuple[Any, ...]]:
        if _is_typed(self.rng) and not isinstance(self.rng, jax.core.Tracer):
            impl = jax.random.key_impl(self.rng)
            return _from_key_data, (jax.random.key_data(self.rng), impl)
        return wrap, (self.rng,)


def wrap(rng: Any) -> PRNGKey:
    """Return a `PRNGKey` around anything: JAX puts all kinds of objects in a tree."""
    key = object.__new__(PRNGKey)
    object.__setattr__(key, "rng", rng)
    return key


def unwrap(key: Any) -> Any:
    """Return the plain JAX key of a `PRNGKey`; anything else as it is."""
    return key.rng if isinstance(key, PRNGKey) else key


def _from_key_data(data: Any, impl: Any) -> PRNGKey:
    return wrap(jax.random.wrap_key_data(data, impl=impl))


def _as_jax_key(seed_or_rng: Any, impl: str | None) -> Any:
    value = unwrap(seed_or_rng)
    if value is not seed_or_rng or _is_typed(value) or _is_raw(value):
        if impl is not None:
            raise TypeError("`impl=` goes with an integer seed, not with a key.")
        return value
    key = _from_seed(value, impl=impl)
    if key is not None:
        return key
    message = (
        "PRNGKey takes an integer seed, a JAX key (raw uint32 or typed) or a PRNGKey, "
        f"not {type(value).__name__}: {value!r:.80}."
    )
    if isinstance(value, str):
        message += f" To derive a key from a text: `PRNGKey(0).fold_in({value!r})`."
    raise TypeError(message)


def _check_index(index: Any, size: int) -> None:
    """JAX clamps what is out of range, which would give the same key twice."""
    if isinstance(index, slice):
        return
    if isinstance(index, jax.Array | np.ndarray):
        if not jax.numpy.issubdtype(index.dtype, jax.numpy.integer):
            raise TypeError(f"Keys are indexed by integers, not by {index.dtype}.")
        return
    try:
        position = operator.index(index)
    except TypeError:
        raise TypeError(
            f"Keys are indexed by integers and slices, not by {index!r}."
        ) from None
    if not -size <= position < size:
        raise IndexError(f"There is no key {position} in a batch of {size} keys.")


#
# Functions on keys of either kind, and the mirror of `jax.random`
#


_Key = TypeVar("_Key")


def fold_in_str(key: _Key, data: str) -> _Key:
    """Fold a string into a key.

    The number folded in never changes (see `hash_to_uint32`), so the result is the
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
    return _like(key, _fold_in(unwrap(key), data))


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
    key = unwrap(key)
    if isinstance(key, jax.core.Tracer):
        raise TypeError(
            "A key can only become a Python integer outside of jit, vmap and other JAX "
            f"transformations, but this one is traced: {key}. Make the seed before the "
            "traced function and pass it in, or draw the random bits with "
            "`jax.random.bits(key)`."
        )
    return int(jax.random.bits(key))


def mirrored_function(name: str) -> Any:
    """Return the `jax.random` function of this name, taking a `PRNGKey` as well."""
    function = None if name.startswith("_") else getattr(jax.random, name, None)
    if not callable(function):
        raise missing_name("kauldron.random", name, list_names())
    return _mirror(name, function)


def list_names() -> list[str]:
    """Return what `dir(kd.random)` shows."""
    own = ["PRNGKey", "fold_in_str", "random_seed"]
    theirs = [name for name, value in vars(jax.random).items() if callable(value)]
    return sorted({*own, *(name for name in theirs if name[0] != "_")})


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


#
# Plain JAX keys: raw `uint32` arrays and typed key arrays
#


# Words in a raw key: 2 for threefry, 4 for rbg.
_RAW_KEY_SIZES = (2, 4)


def _is_typed(key: Any) -> bool:
    """Return whether this is an array of new-style keys (`jax.random.key`)."""
    dtype = getattr(key, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _is_raw(key: Any) -> bool:
    """Return whether this has the form of one or several old-style keys."""
    return (
        getattr(key, "dtype", None) == np.uint32
        and len(key.shape) >= 1
        and key.shape[-1] in _RAW_KEY_SIZES
    )


def _from_seed(seed: Any, *, impl: str | None) -> jax.Array | None:
    """Return an old-style key for an integer seed, None for any other value."""
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


def _fold_in(key: Any, data: Any) -> jax.Array:
    """`jax.random.fold_in` that also takes strings."""
    if isinstance(data, str):
        data = np.uint32(hash_to_uint32(data))
    return jax.random.fold_in(key, data)


@functools.lru_cache(maxsize=4096)
def hash_to_uint32(text: str) -> int:
    """First four bytes of the SHA-1 of the UTF-8 text, as a big-endian number.

    All random streams and data orders derive from this number, so it never changes:
    not between processes, Python versions or releases of this library.

    >>> hash_to_uint32("param")
    3741738263
    """
    digest = hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


#
# What `jax.random` has, and jax itself
#


def _is_key_function(name: str, value: Any) -> bool:
    if name.startswith("_") or not callable(value):
        return False
    return next(iter(inspect.signature(value).parameters), "") in ("key", "keys")


for _name, _function in vars(jax.random).items():
    if _is_key_function(_name, _function) and _name not in vars(PRNGKey):
        setattr(PRNGKey, _name, _mirror(_name, _function))

jax.tree_util.register_pytree_with_keys(
    PRNGKey,
    lambda key: (((jax.tree_util.GetAttrKey("rng"), key.rng),), None),
    lambda _, leaves: wrap(leaves[0]),
    lambda key: ((key.rng,), None),
)
