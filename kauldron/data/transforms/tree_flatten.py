"""Nested fields to top-level fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kauldron.data.transforms.keyed_fields import KeyedFields
from kauldron.data.transforms.transform_types import MapTransform


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeFlattenWithPath(KeyedFields, MapTransform):
    """Turns a nested field into one top-level field per leaf.

    The new names are the path to the leaf, joined by `separator`, after the name of the
    field (or its new name, when `key` is a mapping). A field that is a leaf stays as it
    is.

    Attributes:
      key: The field or fields to flatten, or a mapping from fields to name prefixes.
      separator: Stands between the parts of the new names.

    Example:
      >>> TreeFlattenWithPath(key="a").map({"a": {"b": 1, "c": [5]}, "d": 2})
      {'a_b': 1, 'a_c_0': 5, 'd': 2}
    """

    separator: str = "_"

    traceable = True

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        in_place, added = {}, {}
        for in_key, out_key, value in self.selected_fields(features):
            is_in_place = in_key == out_key and in_key in features
            leaves = in_place.setdefault(in_key, {}) if is_in_place else added
            for name, leaf in _flatten(out_key, value, self.separator):
                self._add(leaves, {name: leaf})
        result: dict[str, Any] = {}
        for name, value in features.items():
            self._add(result, in_place.get(name, {name: value}))
        self._add(result, added)
        return result

    map_batch = map

    def _add(self, result: dict[str, Any], fields: dict[str, Any]) -> None:
        taken = sorted(result.keys() & fields.keys())
        if taken:
            raise KeyError(
                f"TreeFlattenWithPath(key={dict(self._key_items)}, separator="
                f"{self.separator!r}) makes the fields {taken}, which the record"
                " already has. Rename them first, or use another separator."
            )
        result.update(fields)


def _flatten(name: str, value: Any, separator: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        yield name, value
        return
    for part, item in items:
        yield from _flatten(f"{name}{separator}{part}", item, separator)
