"""Transforms that select, rename, add or flatten the fields of a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron.data.engine.trees import describe_leaf, is_jax, leaves_with_paths
from kauldron.data.transforms.fields import (
    KeyedFields,
    first_duplicate,
    missing_keys_message,
    num_records,
)
from kauldron.data.transforms.transform_types import MapTransform
from kauldron.errors import ReadableKeyError
from kauldron.utils.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elements(MapTransform):
    """Selects and renames the fields of a record.

    First copies are taken, then fields are kept or dropped, then renamed. With `keep`
    the result has the kept, the renamed and the copied fields and nothing else. Without
    any argument records pass through.

    Attributes:
      keep: Fields to keep; all others go.
      drop: Fields to drop; all others stay. Not together with `keep`.
      rename: From old name to new name. Names may be swapped.
      copy: From name to the name of the copy. The source may be dropped or renamed.

    Example:
      >>> record = {"image": 1, "label": 2, "id": 3}
      >>> Elements(keep=["image"], rename={"label": "target"}).map(record)
      {'image': 1, 'target': 2}
      >>> Elements(drop="id", copy={"image": "original"}).map(record)
      {'image': 1, 'label': 2, 'original': 1}
    """

    keep: Iterable[str] = ()
    drop: Iterable[str] = ()
    rename: Mapping[str, str] = ImmutableDict()
    copy: Mapping[str, str] = ImmutableDict()

    traceable = True

    def __post_init__(self) -> None:
        for name in ("keep", "drop"):
            object.__setattr__(self, name, _as_names(getattr(self, name), name))
        for name in ("rename", "copy"):
            object.__setattr__(self, name, _as_mapping(getattr(self, name), name))
        _check_conflicts(self)

    def map(self, features: Mapping[str, Any]) -> dict[str, Any]:
        gone = {*self.drop, *self.rename}
        self._check_fields_exist(
            features, (*self.keep, *self.drop, *self.rename, *self.copy)
        )
        result = {
            name: value
            for name, value in features.items()
            if (name in self.keep if self.keep else name not in gone)
        }
        for source, target in self.copy.items():
            if target in features:
                raise ReadableKeyError(_taken_message("copy", source, target))
            result[target] = features[source]
        for source, target in self.rename.items():
            if target in result:
                raise ReadableKeyError(_taken_message("rename", source, target))
            result[target] = features[source]
        return result

    map_batch = map

    def _check_fields_exist(
        self, features: Mapping[str, Any], wanted: Sequence[str]
    ) -> None:
        if not isinstance(features, Mapping):
            raise TypeError(
                f"Elements selects fields, so records must be dicts; got"
                f" {describe_leaf(features)}."
            )
        missing = [name for name in wanted if name not in features]
        if missing:
            raise ReadableKeyError(missing_keys_message(self, missing, features))


def _as_names(names: Any, argument: str) -> tuple[str, ...]:
    if isinstance(names, str):
        names = (names,)
    if not isinstance(names, Iterable):
        raise TypeError(f"Elements({argument}={names!r}): expected names of fields.")
    names = tuple(dict.fromkeys(names))
    _check_are_names(names, argument)
    return names


def _as_mapping(mapping: Any, argument: str) -> ImmutableDict:
    if not isinstance(mapping, Mapping):
        raise TypeError(
            f"Elements({argument}={mapping!r}): expected a mapping from names to names."
        )
    _check_are_names((*mapping.keys(), *mapping.values()), argument)
    return ImmutableDict(mapping)


def _check_are_names(names: Iterable[Any], argument: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Elements({argument}=...): {name!r} is not a name (str).")


def _check_conflicts(elements: Elements) -> None:
    keep, drop = set(elements.keep), set(elements.drop)
    rename, copies = elements.rename, elements.copy
    targets = set(rename.values())
    if keep and drop:
        raise ValueError("Elements takes `keep` or `drop`, not both.")
    for argument, mapping in (("copy", copies), ("rename", rename)):
        twice = first_duplicate(mapping.values())
        if twice is not None:
            raise ValueError(
                f"Elements({argument}={dict(mapping)}) makes {twice!r} twice."
            )
    _refuse_overlap("keep", keep, "the sources of rename", set(rename))
    _refuse_overlap("keep", keep, "the targets of rename", targets)
    _refuse_overlap("drop", drop, "the sources of rename", set(rename))
    copied = set(copies.values())
    for name, names in (
        ("keep", keep),
        ("drop", drop),
        ("the sources of rename", set(rename)),
        ("the targets of rename", targets),
    ):
        _refuse_overlap("the targets of copy", copied, name, names)


def _refuse_overlap(
    name: str, names: set[str], other_name: str, other_names: set[str]
) -> None:
    overlap = sorted(names & other_names)
    if overlap:
        raise ReadableKeyError(
            f"Elements: {overlap} are in {name} and in {other_name}."
        )


def _taken_message(action: str, source: str, target: str) -> str:
    return (
        f"Elements({action}={{{source!r}: {target!r}}}): the record already has a field"
        f" {target!r}. Drop it explicitly: drop=[{target!r}]."
    )


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
        if not isinstance(features, Mapping):
            raise TypeError(
                "AddConstants adds fields, so records must be dicts; got"
                f" {describe_leaf(features)}."
            )
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
