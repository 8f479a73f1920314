"""Pipelines that read one source: any sequence of records, or arrays in memory."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kauldron.data.engine import keys, streams
from kauldron.data.engine.nodes import (
    RandomAccessSource,
    ShuffleNode,
    SourceNode,
    StreamNode,
)
from kauldron.data.in_memory import ColumnSource
from kauldron.data.pipeline import check_choice
from kauldron.data.py.pipeline import PyGrainPipeline, StreamOptions
from kauldron.errors import ReadableKeyError, a_type, did_you_mean
from kauldron.immutabledict import ImmutableDict


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DataSourceBase(PyGrainPipeline):
    """Base of pipelines with one source: sub-classes give `data_source`.

    It is a field or a cached property, an object with `len(source)` and `source[i]`.
    Two optional methods make it faster: `get_batch(indices)` gives a tree of arrays
    with leading dimension `len(indices)`, `__getitems__(indices)` a list of records.

    Attributes:
      shuffle: Whether each epoch has an order of its own.
    """

    shuffle: bool

    _slices_at_source = True

    if TYPE_CHECKING:

        @property
        def data_source(self) -> RandomAccessSource: ...

    def _stream(self, key: keys.Key, options: StreamOptions) -> StreamNode:
        source = self._checked_source()
        node: StreamNode = SourceNode(
            source,
            name=self._name,
            selection=streams.selection(len(source), self._entries),
            seed_bits=keys.bits(key),
            seed_depth=int(self.shard_by_process),
            skipped=options.skipped,
            as_records=options.as_records,
        )
        if self.shuffle and node.length:
            shuffle_key = keys.fold_in_str(key, "shuffle")
            node = ShuffleNode(node, keys.bits(shuffle_key))
        return node

    # Not a property: sub-classes may have a field of this name.
    @functools.cached_property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the source does not know them."""
        names = getattr(self.data_source, "class_names", None)
        return None if names is None else tuple(map(str, names))

    @property
    def _is_in_memory(self) -> bool:
        return bool(getattr(self.data_source, "is_in_memory", False))

    def _checked_source(self) -> Any:
        if "data_source" not in dir(self):
            raise NotImplementedError(
                f"{type(self).__qualname__} has no `data_source`. Define it as a field or"
                " a cached property: an object with `len(source)` and `source[i]`."
            )
        source = self.data_source
        if isinstance(source, type):
            raise TypeError(
                f"{type(self).__name__}: the data source is the class"
                f" {source.__name__} itself: call it."
            )
        missing = [m for m in ("__len__", "__getitem__") if not hasattr(source, m)]
        if missing or isinstance(source, dict):
            hint = " (for a dict of arrays use kd.data.py.Arrays)"
            raise TypeError(
                f"{type(self).__name__}: the data source is {a_type(source)},"
                f" but must give records by number: {' and '.join(missing) or 'integers'}"
                f" needed{hint if isinstance(source, dict) else ''}."
            )
        return source

    def ds_for_current_process(self, rng: Any) -> Any:
        from kauldron.data.py import grain_adapter

        return grain_adapter.source_dataset(self, rng)


# The source is given by position or by name.
@dataclasses.dataclass(frozen=True, eq=False)
class DataSource(DataSourceBase):
    """Records of any object with `__len__` and `__getitem__`, such as a list.

    Attributes:
      data_source: The object.
      shuffle: Whether each epoch has an order of its own.

    Example:
      >>> from kauldron import kd
      >>> records = [{"x": i} for i in range(5)]
      >>> ds = kd.data.py.DataSource(records, shuffle=False, batch_size=2, num_epochs=1)
      >>> [batch["x"].tolist() for batch in ds]
      [[0, 1], [2, 3]]
    """

    data_source: RandomAccessSource = dataclasses.field(kw_only=False)  # pyright: ignore

    def __post_init__(self) -> None:
        super().__post_init__()
        self._checked_source()

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}({type(self.data_source).__qualname__})"


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
        check_choice(self, "device_resident")


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
            if not isinstance(self.fields, Mapping):
                raise TypeError(
                    "Arrays(fields=...) takes a dict from names of the records' fields to"
                    f" paths in the data, not {a_type(self.fields)}: {self.fields!r}."
                )
            object.__setattr__(self, "fields", ImmutableDict(self.fields))

    @functools.cached_property
    def data_source(self) -> ColumnSource:  # pyright: ignore
        data = self.data() if _is_loader(self.data) else self.data
        class_names = getattr(data, "target_names", None)  # scikit-learn's
        if self.fields is not None:
            data = {name: _pick(data, path) for name, path in self.fields.items()}
        return ColumnSource(data, name=self._name, class_names=class_names)

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
        raise ReadableKeyError(
            f"Arrays(fields=...): there is no {path!r} in the data; it has {names}."
            f"{did_you_mean(path, names)}"
        ) from error


def paths_of(value: Any) -> Any:
    """Return paths as text, which can be compared, pickled and put in configs."""
    if isinstance(value, Mapping):
        return ImmutableDict({key: paths_of(path) for key, path in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(paths_of(path) for path in value)
    return os.fspath(value)
