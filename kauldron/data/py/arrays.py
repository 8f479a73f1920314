"""Pipelines whose records are rows of arrays."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from kauldron.data.column_source import ColumnSource
from kauldron.data.pipeline_arguments import check_device_resident
from kauldron.data.py.data_source import DataSourceBase
from kauldron.utils.immutabledict import ImmutableDict

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ColumnPipeline(DataSourceBase):
    """Base of pipelines that read whole batches out of arrays.

    Attributes:
      device_resident: Whether training may keep the records on the device. "auto": if
        they are small and the transforms allow it.
    """

    device_resident: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device_resident(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays(ColumnPipeline):
    """Records that are rows of arrays in memory.

    Attributes:
      data: A tree of arrays that agree in their first dimension, or a function without
        arguments that gives one. It is called once, when data is first needed.
      fields: From names of the records' fields to dotted paths in the data; what is not
        named is left out. By default all of the data.
      shuffle: Whether each epoch has an order of its own.

    Example:
      >>> import numpy as np
      >>> from kauldron import kd
      >>> ds = kd.data.py.Arrays(
      ...     {"x": np.arange(6), "y": np.ones((6, 2))}, shuffle=False, batch_size=3
      ... )
      >>> ds.element_spec["y"]
      ArraySpec(shape=(3, 2), dtype='float64')
    """

    data: Any = dataclasses.field(kw_only=False)
    fields: Mapping[str, str] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fields is not None:
            object.__setattr__(self, "fields", ImmutableDict(self.fields))

    @functools.cached_property
    def data_source(self) -> ColumnSource:  # pyright: ignore
        data = self.data() if _is_loader(self.data) else self.data
        if self.fields is not None:
            data = {name: _pick(data, path) for name, path in self.fields.items()}
        return ColumnSource(data, name=self._name)

    @property
    def _name(self) -> str:
        loader = getattr(self.data, "__qualname__", None)
        return f"Arrays({loader})" if loader and _is_loader(self.data) else "Arrays"


def _is_loader(data: Any) -> bool:
    return isinstance(data, Callable) and not hasattr(data, "__array__")


def _pick(data: Any, path: str) -> Any:
    from kauldron import kontext

    try:
        return kontext.get_by_path(data, path)
    except Exception as error:
        available = list(data) if isinstance(data, Mapping) else dir(data)
        names = [str(n) for n in available if not str(n).startswith("_")]
        raise KeyError(
            f"Arrays(fields=...): there is no {path!r} in the data; it has {names}."
        ) from error


def paths_of(value: Any) -> Any:
    """Paths as text, so that they can be compared, pickled and put in configs."""
    if isinstance(value, Mapping):
        return ImmutableDict({key: paths_of(path) for key, path in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(paths_of(path) for path in value)
    return os.fspath(value)
