"""A whole data set as one tree of arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kauldron.data.column_source import ColumnSource
from kauldron.data.drop_remainder import DropRemainder
from kauldron.data.engine import build_stream, threefry
from kauldron.data.engine.batch_job import BatchJob
from kauldron.data.engine.chunk import Positions, as_array
from kauldron.data.engine.entries import Entry, parse_entries
from kauldron.data.engine.plans import EpochPlan, Share, SparsePlan
from kauldron.data.engine.source_node import SourceNode
from kauldron.data.engine.stream_node import ReorderNode, StreamNode
from kauldron.data.pipeline_arguments import (
    check_device_resident,
    check_num_epochs,
    frozen_transforms,
)
from kauldron.data.processes import BatchSize
from kauldron.data.stream_pipeline import StreamPipeline


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InMemoryPipeline(StreamPipeline):
    """Batches of arrays that are in memory; every epoch is cut into batches anew.

    Attributes:
      loader: Function without arguments that gives a tree of arrays which agree in
        their first dimension. Called once, when data is first needed.
      shuffle: Whether each epoch has an order of its own.
      num_epochs: `None` for endless data.
      drop_remainder: What happens to the records at the end of each epoch that fill no
        batch: `True` or "drop", `False` or "keep", "pad".
      transforms: Applied to the records; see `kd.data.py.PyGrainPipeline`.
      device_resident: Whether training may keep the records on the device. "auto": if
        they are small and the transforms allow it.

    Example:
      >>> from kauldron import kd
      >>> ds = kd.data.InMemoryPipeline(
      ...     loader=lambda: {"x": np.arange(5)}, num_epochs=2, batch_size=2
      ... )
      >>> [batch["x"].tolist() for batch in ds]
      [[0, 1], [2, 3], [0, 1], [2, 3]]
    """

    loader: Callable[[], Any]
    shuffle: bool = False
    num_epochs: int | None = None
    drop_remainder: bool | str | DropRemainder = True
    transforms: Sequence[Any] | Mapping[str, Any] = ()
    device_resident: bool | Literal["auto"] = "auto"

    __root_cfg_fields_to_recurse__ = ("transforms",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "drop_remainder", DropRemainder(self.drop_remainder))
        object.__setattr__(self, "transforms", frozen_transforms(self.transforms))
        check_num_epochs(self)
        check_device_resident(self)
        parse_entries(self.transforms)

    @functools.cached_property
    def examples(self) -> Any:
        """The whole data set."""
        return self._source.columns

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return len(self._source)

    @functools.cached_property
    def _source(self) -> ColumnSource:
        return ColumnSource(self.loader(), name=f"{self._name} examples")

    def _all_entries(self) -> Iterator[Entry]:
        yield from parse_entries(self.transforms)

    def _make_job(self, share: Share) -> BatchJob:
        is_batched = bool(self.batch_size)
        entries = parse_entries(self.transforms)
        node: StreamNode = SourceNode(
            self._source,
            name=self._name,
            selection=build_stream.selection(self.num_examples, entries),
            seed_bits=threefry.bits(threefry.root_key(self.effective_seed)),
            seed_depth=1,  # as in `kd.data.py`, where sharding is a step
            as_records=not is_batched,
        )
        if self.shuffle and node.length:
            node = PhiloxShuffleNode(node, self.effective_seed)
        node = build_stream.apply_entries(node, entries, slices_done=True)
        if is_batched:
            build_stream.stack_early(node)
            BatchSize(self.batch_size or 0)
        make_plan = SparsePlan if node.is_sparse else EpochPlan
        assert isinstance(self.drop_remainder, DropRemainder)
        plan = make_plan(
            length=node.length,
            num_epochs=self.num_epochs,
            batch_size=self.batch_size or None,
            share=share,
            remainder=self.drop_remainder,
        )
        return BatchJob(node, plan, cut_epochs=True)


class PhiloxShuffleNode(ReorderNode):
    """Epoch `e` in the order that numpy's Philox generator, jumped `e` times, gives."""

    def __init__(self, parent: StreamNode, seed: int):
        super().__init__(parent)
        self._key = seed if seed >= 0 else seed % 2**32
        self._order = functools.lru_cache(maxsize=2)(self._compute_order)

    def _compute_order(self, epoch: int) -> np.ndarray:
        order = np.arange(self.length)
        bits = np.random.Philox(key=self._key).jumped(epoch)
        np.random.Generator(bits).shuffle(order)
        return order

    def parent_positions(self, positions: Positions) -> Positions:
        epochs, indices = np.divmod(as_array(positions), self.length)
        out = np.empty_like(indices)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            out[here] = self._order(epoch)[indices[here]] + epoch * self.length
        return out
