"""Pipelines as `grain.MapDataset`s, and the other way round.

Everything here imports grain, so it is imported only where grain is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import grain
import grain.experimental
import numpy as np

from kauldron.data.engine import keys
from kauldron.data.engine.batches import current_share
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.nodes import (
    Chunk,
    Positions,
    SkippedRecords,
    StreamNode,
    as_array,
)
from kauldron.errors import a_type

if TYPE_CHECKING:
    from kauldron.data.py.mixtures import MixtureBase
    from kauldron.data.py.pipeline import PyGrainPipeline
    from kauldron.data.py.sources import DataSourceBase


class GrainNode(StreamNode):
    """The records of a `grain.MapDataset`, which knows of no other process."""

    def __init__(
        self,
        dataset: grain.MapDataset,
        *,
        name: str,
        skipped: SkippedRecords | None = None,
    ):
        self._dataset = dataset
        self._name = name
        self._skipped = skipped
        self.length = len(dataset)
        self.is_sparse = _may_drop(dataset)

    def fetch(self, positions: Positions) -> Chunk:
        records = [self._read(position) for position in as_array(positions).tolist()]
        return Chunk(len(records)).with_records(records, is_fresh=False)

    def _read(self, position: int) -> Any:
        try:
            return self._dataset[position]
        except Exception as error:
            where = f"While reading {self.locate(position)} through grain."
            if self._skipped is None:
                error.add_note(where)
                raise
            self._skipped.add(where, error)
            return None

    def locate(self, position: int) -> str:
        epoch, index = divmod(position, self.length)
        return f"element {index} of epoch {epoch} of {self._name}"

    def filter_names(self) -> list[str]:
        return ["a filter of the grain data set"] if self.is_sparse else []


def dataset_of(pipeline: PyGrainPipeline) -> grain.MapDataset:
    """Return the transformed records of this process as a grain data set."""
    from kauldron.random import PRNGKey

    dataset = pipeline.ds_with_transforms(
        PRNGKey(pipeline.effective_seed % 2**32).fold_in("kmix")
    )
    if not isinstance(dataset, grain.MapDataset):
        raise TypeError(
            f"{type(pipeline).__name__} must build a grain.MapDataset, not"
            f" {a_type(dataset)}."
        )
    return dataset


def source_dataset(pipeline: DataSourceBase, rng: Any) -> grain.MapDataset:
    """Return the part of a source that belongs to this process: every P-th record."""
    key = as_key(rng)
    dataset = grain.MapDataset.source(pipeline.data_source)
    dataset = dataset.seed(keys.bits(key))
    if pipeline.shard_by_process:
        share = current_share()
        dataset = dataset.slice(slice(share.index, None, share.count))
    return shuffled(dataset, key) if pipeline.shuffle else dataset


def shuffled(dataset: grain.MapDataset, key: keys.Key) -> grain.MapDataset:
    """Return the data set with each epoch in the order that belongs to the key."""
    return dataset.shuffle(seed=keys.bits(keys.fold_in_str(key, "shuffle")))


def with_transforms(
    dataset: grain.MapDataset, entries: Sequence[Entry]
) -> grain.MapDataset:
    """Return the data set after the entries of `transforms=`."""
    for entry in entries:
        dataset = _APPLY[entry.kind](dataset, entry.transform)
    return dataset


class _MixedDataset(grain.MapDataset):
    """A stream of ours that draws from grain data sets, as one of them."""

    def __init__(self, stream: StreamNode, parents: Sequence[grain.MapDataset]):
        super().__init__(parents)
        self._stream = stream

    def __len__(self) -> int:
        return self._stream.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        records = self._stream.fetch(np.array([index])).own_records()
        return records[0] if records else None


def mixture(pipeline: MixtureBase, rng: Any) -> grain.MapDataset:
    """Return the records of a mixture that belong to this process."""
    from kauldron.random import PRNGKey

    rng = PRNGKey(rng)
    children = list(pipeline._children().values())
    parts = [ds.ds_with_transforms(rng.fold_in(i)) for i, ds in enumerate(children)]
    streams: list[StreamNode] = [
        GrainNode(part, name=ds._name) for part, ds in zip(parts, children)
    ]
    dataset = _MixedDataset(pipeline._mixed(streams), parts)
    return shuffled(dataset, as_key(rng)) if pipeline.shuffle else dataset


def as_key(rng: Any) -> keys.Key:
    """Return a key of jax, raw, typed or wrapped, as ours."""
    if isinstance(rng, keys.Key):
        return rng
    rng = getattr(rng, "rng", rng)
    if not np.issubdtype(getattr(rng, "dtype", np.int64), np.uint32):
        import jax

        rng = jax.random.key_data(rng)
    high, low = np.asarray(rng).tolist()
    return keys.Key(high, low)


def _flat_map(dataset: grain.MapDataset, transform: Any) -> grain.MapDataset:
    return grain.experimental.FlatMapMapDataset(dataset, transform)


def _batch(dataset: grain.MapDataset, transform: Any) -> grain.MapDataset:
    return dataset.batch(
        transform.batch_size,
        drop_remainder=transform.drop_remainder,
        batch_fn=getattr(transform, "batch_fn", None),
    )


_APPLY: dict[Kind, Callable[[grain.MapDataset, Any], grain.MapDataset]] = {
    Kind.MAP: lambda ds, t: ds.map(t),
    Kind.CALL: lambda ds, t: ds.map(t),
    Kind.FILTER: lambda ds, t: ds.filter(t),
    Kind.RANDOM_MAP: lambda ds, t: ds.random_map(t),
    Kind.MAP_WITH_INDEX: lambda ds, t: ds.map_with_index(t),
    Kind.SLICE: lambda ds, t: ds.slice(t.as_slice()),
    Kind.FLAT_MAP: _flat_map,
    Kind.BATCH: _batch,
}


def _may_drop(dataset: Any) -> bool:
    """Return whether a filter or flat-map is among the steps of a data set."""
    if type(dataset).__name__ in ("FilterMapDataset", "FlatMapMapDataset"):
        return True
    return any(_may_drop(parent) for parent in getattr(dataset, "parents", ()))
