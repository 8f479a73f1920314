"""The methods that make a config the `MutableMapping` it claims to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron.konfig.errors import key_error
from kauldron.konfig.ml_collections_api import MlCollectionsApi
from kauldron.konfig.node import Key

_MISSING: Any = object()


class MappingMethods(MlCollectionsApi):
    """Everything that can be said in terms of reading, writing and deleting a field."""

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a field, or `default` if there is no such field."""
        if key in self:
            return self[key]
        return default

    def keys(self) -> list[Key]:
        """The keys, in the order of insertion."""
        return list(self._fields)

    def values(self, preserve_field_references: bool = False) -> list[Any]:
        """The values, references evaluated unless they are to be preserved."""
        return [value for _, value in self.items(preserve_field_references)]

    def items(self, preserve_field_references: bool = False) -> list[tuple[Key, Any]]:
        """The pairs, references evaluated unless they are to be preserved."""
        if preserve_field_references:
            return list(self._fields.items())
        return [(key, self[key]) for key in list(self._fields)]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        names = [k for k in self._fields if isinstance(k, str) and k.isidentifier()]
        return [*names, *dir(type(self))]

    def setdefault(self, key: Key, default: Any = None) -> Any:
        """The value of a field, which is first set to `default` if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Key, default: Any = _MISSING) -> Any:
        """Removes a field and returns its value (or `default` if it is missing)."""
        if key not in self and default is not _MISSING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Key, Any]:
        """Removes the last field and returns its key and value."""
        if not self._fields:
            raise key_error("The config is empty.")
        key = next(reversed(self._fields))
        return key, self.pop(key)

    def clear(self) -> None:
        """Removes all fields."""
        for key in self.keys():
            del self[key]
