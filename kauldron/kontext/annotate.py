"""Keys: fields of an object that say from where its call arguments come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from kauldron.kontext.annotated_fields import get_annotated

_T = TypeVar("_T")

REQUIRED = "__KEY_REQUIRED__"
"""Default of a key that must be set. A plain string, to go through JSON unchanged."""

Context: TypeAlias = Any
"""Anything a path can point into."""


class _KeyToken:
    """Marks an annotation as a key."""

    # Compared instead of the object, which is another one after a reload.
    __kontext_marker__ = "kauldron.kontext.Key"
    names = ("Key", "KeyTree")

    def __repr__(self) -> str:
        return "key"


_KEY_TOKEN = _KeyToken()

Key: TypeAlias = Annotated[Any, _KEY_TOKEN]
"""Annotation of a field that holds a path, or a tree of paths."""

KeyTree = Annotated[_T, _KEY_TOKEN]
"""`KeyTree[T]`: annotation of a field that holds a tree of paths shaped like `T`."""


def is_key_annotated(cls_or_obj: Any) -> bool:
    """Whether a class, or the class of an object, has keys.

    >>> class Loss:
    ...     preds: Key = REQUIRED
    >>> is_key_annotated(Loss), is_key_annotated(int)
    (True, False)
    """
    cls = cls_or_obj if isinstance(cls_or_obj, type) else type(cls_or_obj)
    return hasattr(cls, "__kontext_keys__") or bool(get_annotated(cls, _KEY_TOKEN))


def get_keypaths(obj: Any) -> dict[str, Any]:
    """The keys of an object.

    They are its fields annotated as `Key` or `KeyTree`. A class can compute them
    itself instead, with a method `__kontext_keys__() -> dict`.

    >>> class Loss:
    ...     preds: Key = "preds.image"
    ...     mask: Key | None = None
    >>> get_keypaths(Loss())
    {'preds': 'preds.image', 'mask': None}

    Returns:
      For the name of each key its path, tree of paths, or None. A key field that has
      no value counts as `REQUIRED`.
    """
    cls = type(obj)
    if not hasattr(cls, "__kontext_keys__"):
        names = get_annotated(cls, _KEY_TOKEN)
        return {name: getattr(obj, name, REQUIRED) for name in names}
    keys = cls.__kontext_keys__(obj)
    if not isinstance(keys, Mapping):
        raise TypeError(
            f"{cls.__qualname__}.__kontext_keys__() must return a dict from names to "
            f"paths, not {type(keys).__name__}: {keys!r}"
        )
    return dict(keys)
