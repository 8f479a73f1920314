"""Pipelines that read one source."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kauldron.data.engine import build_stream, threefry
from kauldron.data.engine.source_node import RandomAccessSource, SourceNode
from kauldron.data.engine.stream_node import ShuffleNode, StreamNode
from kauldron.data.py.py_grain_pipeline import PyGrainPipeline, StreamOptions


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

    if TYPE_CHECKING:

        @property
        def data_source(self) -> RandomAccessSource: ...

    def _stream(self, key: threefry.Key, options: StreamOptions) -> StreamNode:
        source = self._checked_source()
        node: StreamNode = SourceNode(
            source,
            name=self._name,
            selection=build_stream.selection(len(source), self._entries),
            seed_bits=threefry.bits(key),
            seed_depth=int(self.shard_by_process),
            skipped=options.skipped,
            as_records=options.as_records,
        )
        if self.shuffle and node.length:
            shuffle_key = threefry.fold_in_str(key, "shuffle")
            node = ShuffleNode(node, threefry.bits(shuffle_key))
        return node

    @property
    def _slices_at_source(self) -> bool:
        return True

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
        missing = [m for m in ("__len__", "__getitem__") if not hasattr(source, m)]
        if missing or isinstance(source, dict):
            hint = " (for a dict of arrays use kd.data.py.Arrays)"
            raise TypeError(
                f"{type(self).__name__}: the data source is a {type(source).__name__},"
                f" but must give records by number: {' and '.join(missing) or 'integers'}"
                f" needed{hint if isinstance(source, dict) else ''}."
            )
        return source

    def ds_for_current_process(self, rng: Any) -> Any:
        from kauldron.data.py import grain_datasets

        return grain_datasets.source_dataset(self, rng)


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
        source = self.data_source
        if isinstance(source, list | tuple):
            return f"{type(self).__name__}({type(source).__name__})"
        return f"{type(self).__name__}({type(source).__qualname__})"
