"""Adding and nesting fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron.data.transforms import MapTransform
from kauldron.data.transforms.fields import check_is_record, num_records
from kauldron.errors import ReadableKeyError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddStringField(MapTransform):
    """Adds a field with a text.

    Attributes:
      key: Name of the field.
      value: The text.
      overwrite_existing: Whether a field of that name is replaced; else it is an error.
    """

    key: str
    value: str
    overwrite_existing: bool = False

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._others(element), self.key: self.value}

    def map_batch(self, element: Mapping[str, Any]) -> dict[str, Any]:
        texts = np.full(num_records(element), self.value)
        return {**self._others(element), self.key: texts}

    def _others(self, element: Mapping[str, Any]) -> dict[str, Any]:
        check_is_record(element, self)
        if self.key in element and not self.overwrite_existing:
            raise ReadableKeyError(
                f"AddStringField: the record already has a field {self.key!r}. Replace it:"
                " overwrite_existing=True."
            )
        return {name: value for name, value in element.items() if name != self.key}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeUnflattenForKey(MapTransform):
    """Gathers fields with a common prefix into one nested field.

    The inverse of `kd.data.TreeFlattenWithPath`: fields whose names count from 0 become
    a list. A record without such fields stays as it is.

    Attributes:
      key: The prefix, and the name of the nested field.
      separator: What stands between the parts of the names.

    Example:
      >>> TreeUnflattenForKey(key="a").map({"a_b": 1, "a_c_0": 5, "d": 2})
      {'d': 2, 'a': {'b': 1, 'c': [5]}}
    """

    key: str
    separator: str = "_"

    traceable = True

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        prefix = self.key + self.separator
        result = {k: v for k, v in element.items() if not k.startswith(prefix)}
        tree: dict[str, Any] = {}
        for name, value in element.items():
            if name.startswith(prefix):
                self._insert(tree, name, name.removeprefix(prefix), value)
        if not tree:
            return dict(element)
        if self.key in result:
            raise ReadableKeyError(
                f"TreeUnflattenForKey: the record already has a field {self.key!r}."
            )
        return {**result, self.key: _with_lists(tree)}

    map_batch = map

    def _insert(self, tree: dict[str, Any], name: str, path: str, value: Any) -> None:
        *parents, last = path.split(self.separator)
        for part in parents:
            tree = tree.setdefault(part, {})
            if not isinstance(tree, dict):
                raise LeafAndNodeError(
                    f"TreeUnflattenForKey: {name!r} lies below a leaf."
                )
        if last in tree:
            raise LeafAndNodeError(
                f"TreeUnflattenForKey: {name!r} is a leaf and a node."
            )
        tree[last] = value


class LeafAndNodeError(ReadableKeyError, ValueError):
    """Two names of fields of which one lies below the other."""


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    tree = {name: _with_lists(value) for name, value in tree.items()}
    if set(tree) == {str(i) for i in range(len(tree))}:
        return [tree[str(i)] for i in range(len(tree))]
    return tree
