"""`ImmutableDict`: what dicts of a config become when it is resolved.

It is a pytree of jax, and flax saves it as a dict, but importing this module imports
neither: both are told about the class when they get loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from kauldron.errors import did_you_mean
from kauldron.import_hooks import on_import

K = TypeVar("K")
V = TypeVar("V")


class ImmutableDict(Mapping[K, V], Generic[K, V]):
    """A frozen, hashable, ordered mapping whose items are attributes too.

    Constructed like `dict`. Methods win over keys of the same name: `d.keys` is the
    method, `d["keys"]` the item.

    Example:
      >>> d = ImmutableDict(b=1, a=2)
      >>> d.a, d["b"], d == {"a": 2, "b": 1}
      (2, 1, True)
      >>> d.set("c", 3)
      ImmutableDict({'b': 1, 'a': 2, 'c': 3})
    """

    __slots__ = ("__weakref__", "_hash", "_items")
    _items: dict[K, V]
    _hash: int | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "_items", dict(*args, **kwargs))
        object.__setattr__(self, "_hash", None)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Any) -> bool:
        return key in self._items

    def __getattr__(self, name: str) -> Any:
        if name in ("_items", "_hash"):  # unpickling asks before there is anything
            raise AttributeError(name)
        try:
            return self._items[name]  # pyright: ignore[reportArgumentType]
        except KeyError:
            pass
        hint = "" if name.startswith("__") else did_you_mean(name, self._items)
        raise AttributeError(f"ImmutableDict has no item {name!r}.{hint}", name=name)

    def __dir__(self) -> list[str]:
        names = [k for k in self._items if isinstance(k, str) and k.isidentifier()]
        return [*names, *super().__dir__()]

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"ImmutableDict is immutable: cannot set {name!r}. "
            f"d.set({name!r}, value) returns a changed copy."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"ImmutableDict is immutable: cannot delete {name!r}.")

    # --------------------------------------------------------------------------------
    # Changed copies
    # --------------------------------------------------------------------------------

    def set(self, key: K, value: V) -> ImmutableDict[K, V]:
        """Return a copy with one item set."""
        return ImmutableDict({**self._items, key: value})

    def delete(self, key: K) -> ImmutableDict[K, V]:
        """Return a copy without an item.

        Raises:
          KeyError: There is no such item.
        """
        if key not in self._items:
            raise KeyError(key)
        return self.discard(key)

    def discard(self, key: K) -> ImmutableDict[K, V]:
        """Return a copy without an item, whether it exists or not."""
        return ImmutableDict({k: v for k, v in self._items.items() if k != key})

    def update(self, *args: Any, **kwargs: Any) -> ImmutableDict[K, V]:
        """Return a copy updated like a `dict`."""
        return ImmutableDict({**self._items, **dict(*args, **kwargs)})

    def copy(self) -> ImmutableDict[K, V]:
        """Return the dict itself: it does not change."""
        return self

    def __or__(self, other: Any) -> ImmutableDict[K, V]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return ImmutableDict({**self._items, **other})

    def __ror__(self, other: Any) -> dict[Any, Any]:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {**other, **self._items}

    # --------------------------------------------------------------------------------
    # As a value
    # --------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, ImmutableDict):
            return self._items == other._items
        if isinstance(other, Mapping):
            return self._items == dict(other)
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._hashable_items())))
        assert self._hash is not None
        return self._hash

    def _hashable_items(self) -> Iterator[tuple[K, V]]:
        for key, value in self._items.items():
            try:
                hash(value)
            except TypeError as error:
                raise TypeError(
                    f"ImmutableDict is not hashable because of [{key!r}]: {error}"
                ) from None
            yield key, value

    def __repr__(self) -> str:
        items = [f"{key!r}: {value!r}" for key, value in self._items.items()]
        return block("ImmutableDict({", items, "})")

    def __copy__(self) -> ImmutableDict[K, V]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ImmutableDict, (dict(self._items),)


def block(
    opening: str, children: Sequence[str], closing: str, *, width: int = 20
) -> str:
    """Lay out children on one line if there is little to show, else one per line.

    >>> block("f(", ["x=1", "y=2"], ")")
    'f(x=1, y=2)'
    >>> print(block("f(", ["x=1000000000", "y=2000000000"], ")"))
    f(
        x=1000000000,
        y=2000000000,
    )
    """
    short = len(children) <= 1 or sum(map(len, children)) <= width
    if short and not any("\n" in child for child in children):
        return f"{opening}{', '.join(children)}{closing}"
    body = "".join(f"{child},\n" for child in children)
    indented = "".join(f"    {line}" for line in body.splitlines(keepends=True))
    return f"{opening}\n{indented}{closing}"


# ------------------------------------------------------------------------------------
# Freezing and unfreezing
# ------------------------------------------------------------------------------------


def freeze(obj: Any) -> Any:
    """Turn dicts into `ImmutableDict`s and lists into tuples, recursively.

    >>> freeze({"a": [1, {"b": 2}]})
    ImmutableDict({'a': (1, ImmutableDict({'b': 2}))})
    """
    if type(obj) in (dict, ImmutableDict):
        return ImmutableDict({key: freeze(value) for key, value in obj.items()})
    if type(obj) in (list, tuple):
        return tuple(freeze(item) for item in obj)
    return obj


def unfreeze(obj: Any) -> Any:
    """Turn every `ImmutableDict` into a `dict`, at any depth.

    Also inside lists, tuples, dicts and whatever else is a pytree of jax.

    >>> unfreeze(ImmutableDict(a=[ImmutableDict(b=1)]))
    {'a': [{'b': 1}]}
    """
    if isinstance(obj, ImmutableDict) or type(obj) is dict:
        return {key: unfreeze(value) for key, value in obj.items()}
    if type(obj) in (list, tuple):
        return type(obj)(unfreeze(item) for item in obj)
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(unfreeze(item) for item in obj))
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "tree"):
        return obj
    leaves, structure = jax.tree.flatten(obj, is_leaf=lambda node: node is not obj)
    if len(leaves) == 1 and leaves[0] is obj:
        return obj
    return jax.tree.unflatten(structure, [unfreeze(leaf) for leaf in leaves])


def freeze_dict_attrs(obj: Any, attrs: Iterable[str]) -> None:
    """Replace attributes that are dicts by `ImmutableDict`s, also of frozen objects.

    Args:
      obj: The object; changed in place.
      attrs: The names of the attributes. Those that are not dicts are left alone.
    """
    for name in attrs:
        value = getattr(obj, name)
        if isinstance(value, dict):
            object.__setattr__(obj, name, ImmutableDict(value))


# ------------------------------------------------------------------------------------
# jax and flax
# ------------------------------------------------------------------------------------


class _Keys:
    """The keys of a flattened dict, in their own order and in that of the leaves.

    Equal if the leaves are in the same order, whatever the order of the dicts.
    """

    __slots__ = ("keys", "of_leaves")

    def __init__(self, d: ImmutableDict[Any, Any]) -> None:
        self.keys = tuple(d)
        try:
            self.of_leaves = tuple(sorted(self.keys))  # as for a plain dict
        except TypeError:
            self.of_leaves = self.keys  # of mixed types

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Keys) and self.of_leaves == other.of_leaves

    def __hash__(self) -> int:
        return hash(self.of_leaves)

    def __repr__(self) -> str:
        return repr(list(self.of_leaves))


def _unflatten(keys: _Keys, leaves: Iterable[Any]) -> ImmutableDict[Any, Any]:
    items = dict(zip(keys.of_leaves, leaves))
    return ImmutableDict({key: items[key] for key in keys.keys})


def _register_in_jax() -> None:
    from jax import tree_util

    def flatten(d: ImmutableDict[Any, Any]) -> Any:
        keys = _Keys(d)
        return [d[key] for key in keys.of_leaves], keys

    def flatten_with_keys(d: ImmutableDict[Any, Any]) -> Any:
        keys = _Keys(d)
        return [(tree_util.DictKey(key), d[key]) for key in keys.of_leaves], keys

    tree_util.register_pytree_with_keys(
        ImmutableDict, flatten_with_keys, _unflatten, flatten
    )


def _register_in_flax() -> None:
    from flax import serialization

    def to_state_dict(d: ImmutableDict[Any, Any]) -> dict[str, Any]:
        return serialization.to_state_dict(dict(d))

    def from_state_dict(
        d: ImmutableDict[Any, Any], state: dict[str, Any]
    ) -> ImmutableDict[Any, Any]:
        return ImmutableDict(serialization.from_state_dict(dict(d), state))

    serialization.register_serialization_state(
        ImmutableDict, to_state_dict, from_state_dict
    )


on_import("jax", _register_in_jax)
on_import("flax.serialization", _register_in_flax)
