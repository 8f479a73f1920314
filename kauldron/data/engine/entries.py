"""The entries of `transforms=`: which kind each one is, checked early."""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kauldron.data.transforms import transform_types
from kauldron.errors import a_type


class Kind(enum.Enum):
    """How an entry is applied."""

    MAP = "map"
    RANDOM_MAP = "random_map"
    FILTER = "filter"
    MAP_WITH_INDEX = "map_with_index"
    FLAT_MAP = "flat_map"
    BATCH = "batch"
    SLICE = "slice"
    CALL = "__call__"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of `transforms=`.

    Attributes:
      kind: How it is applied.
      transform: The object the user gave.
      label: What messages call it: `transforms[2]` or `transforms['scale']`.
    """

    kind: Kind
    transform: Any
    label: str

    def __str__(self) -> str:
        return f"{self.label} {short_repr(self.transform)}"

    @property
    def is_ours(self) -> bool:
        """Whether this library wrote the transform, so that it changes no input."""
        return type(self.transform).__module__.startswith("kauldron.")

    @property
    def may_drop(self) -> bool:
        """Whether the entry is there to drop or multiply records."""
        return self.kind in (Kind.FILTER, Kind.FLAT_MAP)


def parse_entries(transforms: Sequence[Any] | Mapping[str, Any]) -> tuple[Entry, ...]:
    """Return the entries in the order of application.

    Raises:
      TypeError: An entry is of an unknown kind.
      ValueError: An entry belongs to the other back-end.
    """
    return tuple(
        Entry(_kind(transform, label), transform, label)
        for label, transform in labelled(transforms)
    )


def labelled(
    transforms: Sequence[Any] | Mapping[str, Any],
) -> list[tuple[str, Any]]:
    """Return each transform with what messages call it.

    Raises:
      TypeError: It is neither a list nor a dict, or holds a class.
    """
    if isinstance(transforms, Mapping):
        named = [(f"transforms[{name!r}]", t) for name, t in transforms.items()]
    elif isinstance(transforms, Sequence) and not isinstance(transforms, str):
        named = [(f"transforms[{i}]", t) for i, t in enumerate(transforms)]
    else:
        raise TypeError(
            "transforms= takes a list or a dict of transforms, not"
            f" {type(transforms).__name__}: {short_repr(transforms)}."
        )
    for label, transform in named:
        if isinstance(transform, type):
            raise TypeError(
                f"{label} is the class {transform.__name__}, not an object of it; did"
                " you forget the parentheses?"
            )
    return named


def short_repr(value: Any) -> str:
    """Return a repr on one line, of limited length."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 160 else text[:157] + "..."


def _kind(transform: Any, label: str) -> Kind:
    if getattr(type(transform), "__kd_data_backend__", None) == "tf":
        name = type(transform).__name__
        raise ValueError(
            f"{label}: {name} works on TensorFlow tensors; in this pipeline use a"
            f" transform of kd.data or kd.data.py (kd.data.py.{name}, if there is one)."
        )
    if isinstance(transform, SliceDataset):
        return Kind.SLICE
    for cls, kind in _OUR_TYPES:
        if isinstance(transform, cls):
            return kind
    for module, name, kind in _GRAIN_TYPES:
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and isinstance(transform, cls):
            return kind
    if hasattr(transform, "flat_map") and hasattr(transform, "max_fan_out"):
        return Kind.FLAT_MAP
    if callable(transform):
        return Kind.CALL
    raise TypeError(
        f"{label} is {a_type(transform)} ({short_repr(transform)}), which is"
        " not a transform. Accepted are: kd.data.MapTransform, kd.data.FilterTransform,"
        " kd.data.RandomMapTransform, the transforms of grain,"
        " kd.data.py.SliceDataset, and functions of one record."
    )


_OUR_TYPES = (
    (transform_types.MapTransform, Kind.MAP),
    (transform_types.FilterTransform, Kind.FILTER),
    (transform_types.RandomMapTransform, Kind.RANDOM_MAP),
)

# Looked up only where the user's own code has imported grain.
_GRAIN_TYPES = (
    ("grain.transforms", "Map", Kind.MAP),
    ("grain.transforms", "RandomMap", Kind.RANDOM_MAP),
    ("grain.transforms", "Filter", Kind.FILTER),
    ("grain.transforms", "MapWithIndex", Kind.MAP_WITH_INDEX),
    ("grain.transforms", "Batch", Kind.BATCH),
    ("grain.python", "MapTransform", Kind.MAP),
    ("grain.python", "RandomMapTransform", Kind.RANDOM_MAP),
    ("grain.python", "FilterTransform", Kind.FILTER),
    ("grain.python", "MapWithIndexTransform", Kind.MAP_WITH_INDEX),
    ("grain.python", "Batch", Kind.BATCH),
    ("grain.experimental", "FlatMapTransform", Kind.FLAT_MAP),
)


_PARTS = ("start", "stop", "step")


@dataclasses.dataclass(frozen=True)
class SliceDataset:
    """Keep some of the records, chosen as `slice` does: `(stop)`, `(start, stop[, step])`.

    Each part can also be given by its name.

    Among the transforms of a source it selects records of the source, before shuffling
    and sharding: the same ones in every epoch and on every process.

    >>> SliceDataset(10)
    SliceDataset(None, 10, None)
    >>> SliceDataset(2, 10, 2).as_slice()
    slice(2, 10, 2)
    >>> SliceDataset(start=2, stop=10)
    SliceDataset(2, 10, None)
    """

    start: int | None
    stop: int | None
    step: int | None

    def __init__(
        self,
        *args: int | None,
        start: int | None = ...,  # pyright: ignore[reportArgumentType]
        stop: int | None = ...,  # pyright: ignore[reportArgumentType]
        step: int | None = ...,  # pyright: ignore[reportArgumentType]
    ):
        named = {"start": start, "stop": stop, "step": step}
        named = {name: value for name, value in named.items() if value is not ...}
        if len(args) > 3 or not (args or named):
            raise TypeError(
                "SliceDataset takes (stop), (start, stop) or (start, stop, step); got"
                f" {len(args)} arguments."
            )
        is_stop = len(args) == 1 and "stop" not in named
        given = dict(zip(("stop",) if is_stop else _PARTS, args))
        for name in _PARTS:
            if name in given and name in named:
                raise TypeError(f"SliceDataset got its {name} twice.")
            value = (given | named).get(name)
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"SliceDataset: {name}={value!r} is not an integer.")
            object.__setattr__(self, name, value)
        if self.step == 0:
            raise ValueError("SliceDataset: the step cannot be zero.")

    def __repr__(self) -> str:
        return f"SliceDataset({self.start!r}, {self.stop!r}, {self.step!r})"

    def as_slice(self) -> slice:
        """Return the slice it stands for."""
        return slice(self.start, self.stop, self.step)
