"""Transforms that add fields, or turn nested fields into top-level ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kauldron.data.engine.trees import is_jax, leaves_with_paths
from kauldron.data.transforms.fields import (
    KeyedFields,
    check_is_record,
    num_records,
)
from kauldron.data.transforms.transform_types import MapTransform
from kauldron.errors import ReadableKeyError
from kauldron.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, eq=False)
class AddConstants(MapTransform):
    """Adds fields with constant values.

    Attributes:
      values: From the name of the new field to its value: a number, a string, an array,
        or a nested dict or list of those.

    Example:
      >>> AddConstants({"weight": 1.0}).map({"x": 3})
      {'x': 3, 'weight': 1.0}
    """

    values: Mapping[str, Any] = ImmutableDict()

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping):
            raise TypeError(
                "AddConstants takes a mapping from field names to values, got"
                f" {self.values!r}."
            )
        values = {name: _frozen(value) for name, value in self.values.items()}
        object.__setattr__(self, "values", ImmutableDict(values))

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        self._check_free(features)
        return {**features, **_thawed(self.values, lambda leaf: leaf)}

    def map_batch(self, features: Mapping[str, Any]) -> dict[str, Any]:
        self._check_free(features)
        size = num_records(features)

        def repeat(leaf: Any) -> np.ndarray:
            return np.broadcast_to(leaf, (size, *np.shape(leaf))).copy()

        return {**features, **_thawed(self.values, repeat)}

    @property
    def traceable(self) -> bool:
        """Whether every constant may be part of a compiled function."""
        leaves = leaves_with_paths(self.values)
        return all(np.asarray(leaf).dtype.kind not in "OUST" for _, leaf in leaves)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _by_value(self.values) == _by_value(other.values)

    def __hash__(self) -> int:
        return hash(_by_value(self.values))

    def _check_free(self, features: Mapping[str, Any]) -> None:
        check_is_record(features, self)
        taken = sorted(name for name in self.values if name in features)
        if taken:
            raise ReadableKeyError(
                f"AddConstants: the record already has the fields {taken}. Drop them"
                f" first: kd.data.Elements(drop={taken})."
            )


def _frozen(value: Any) -> Any:
    """Return a read-only copy, whose arrays all records can share."""
    if isinstance(value, Mapping):
        return ImmutableDict({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, np.ndarray) or is_jax(value):
        value = np.array(value)
        value.flags.writeable = False
    return value


def _thawed(value: Any, map_leaf: Callable[[Any], Any]) -> Any:
    """Return plain dicts and lists of what `map_leaf` gives for the leaves."""
    if isinstance(value, Mapping):
        return {name: _thawed(item, map_leaf) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_thawed(item, map_leaf) for item in value]
    return None if value is None else map_leaf(value)


def _by_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return frozenset((name, _by_value(item)) for name, item in value.items())
    if isinstance(value, tuple):
        return tuple(_by_value(item) for item in value)
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    return (type(value), value)


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
            raise ReadableKeyError(
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
