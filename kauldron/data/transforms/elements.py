"""Keep, drop, rename and copy fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron.data.transforms.array_family import describe
from kauldron.data.transforms.keyed_fields import (
    first_duplicate,
    missing_keys_message,
)
from kauldron.data.transforms.transform_types import MapTransform
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
        self._check_sources(features)
        gone = {*self.drop, *self.rename}
        if self.keep:
            result = {k: v for k, v in features.items() if k in self.keep}
        else:
            result = {k: v for k, v in features.items() if k not in gone}
        for source, target in self.copy.items():
            if target in features:
                raise KeyError(_taken_message("copy", source, target))
            result[target] = features[source]
        for source, target in self.rename.items():
            if target in result:
                raise KeyError(_taken_message("rename", source, target))
            result[target] = features[source]
        return result

    map_batch = map

    def _check_sources(self, features: Mapping[str, Any]) -> None:
        if not isinstance(features, Mapping):
            raise TypeError(
                f"Elements selects fields, so records must be dicts; got"
                f" {describe(features)}."
            )
        wanted = (*self.keep, *self.drop, *self.rename, *self.copy)
        missing = [name for name in wanted if name not in features]
        if missing:
            raise KeyError(missing_keys_message(self, missing, features))


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
        raise KeyError(f"Elements: {overlap} are in {name} and in {other_name}.")


def _taken_message(action: str, source: str, target: str) -> str:
    return (
        f"Elements({action}={{{source!r}: {target!r}}}): the record already has a field"
        f" {target!r}. Drop it explicitly: drop=[{target!r}]."
    )
