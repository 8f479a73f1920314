"""Data sets made of other data sets: map, take, cache, prefetch, device_put."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kauldron.data import op_iterators
from kauldron.data.array_spec import ArraySpec, specs_of
from kauldron.data.drop_remainder import DropRemainder
from kauldron.data.engine import record_tree, stacking
from kauldron.data.iterable_dataset import IterableDataset
from kauldron.data.iters.iterator import Iterator, as_iterator, wrap_like
from kauldron.data.iters.non_checkpointable import NonCheckpointableIterator
from kauldron.data.iters.py_grain_iterator import PyGrainIterator
from kauldron.utils.batch_mask import (
    BATCH_MASK,
    UnmaskableError,
    with_mask_of,
    without_mask,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DatasetOp(IterableDataset):
    """Something done to the batches of a parent.

    Attributes:
      parent: The data set it starts from; it is left as it is.
    """

    parent: IterableDataset

    @property
    def element_spec(self) -> Any:
        return self.parent.element_spec

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def gives_single_records(self) -> bool:
        return self.parent.gives_single_records

    def __iter__(self) -> Iterator:
        parent = as_iterator(self.parent)
        return wrap_like(parent, source=self, iterator=self._wrap(parent))

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        parent = self.parent.with_remainder(remainder)
        return (
            self if parent is self.parent else dataclasses.replace(self, parent=parent)
        )

    @abc.abstractmethod
    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        """The iterator of this operation over one of the parent."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MapDataset(DatasetOp):
    """A function applied to each batch. It does not see the mask of a padded batch.

    Attributes:
      parent: The data set.
      map_fn: From batch to batch.
    """

    map_fn: Callable[[Any], Any]

    @functools.cached_property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return specs_of(self.first())

    @property
    def gives_single_records(self) -> bool:
        return False  # the function may make batches

    def first(self) -> Any:
        return self._apply(self.parent.first())

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        return op_iterators.MapIterator(iterator, self._apply)

    def _apply(self, batch: Any) -> Any:
        return with_mask_of(batch, self.map_fn(without_mask(batch)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PadDataset(DatasetOp):
    """Batches that are filled up to one size, with the mask of what is real.

    Attributes:
      parent: The data set.
      size: Records of a batch on this process.
    """

    size: int

    @property
    def element_spec(self) -> Any:
        spec = self.parent.element_spec
        if not isinstance(spec, dict):
            return spec
        spec = record_tree.map_leaves(
            lambda leaf: ArraySpec((self.size, *leaf.shape[1:]), leaf.dtype), spec
        )
        return {**spec, BATCH_MASK: ArraySpec((self.size,), bool)}

    def first(self) -> Any:
        return self._pad(self.parent.first())

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        return op_iterators.MapIterator(iterator, self._pad)

    def _pad(self, batch: Any) -> Any:
        sizes = {np.shape(leaf)[:1] for _, leaf in record_tree.leaves_with_paths(batch)}
        if len(sizes) != 1 or sizes == {()}:
            return batch  # nothing says how many records there are
        ((real,),) = sizes
        if real < self.size:
            batch = stacking.pad_rows(batch, self.size)
        if isinstance(batch, dict):
            return {**batch, BATCH_MASK: np.arange(max(real, self.size)) < real}
        if real < self.size:
            raise UnmaskableError(
                f"a batch that is a {type(batch).__name__} cannot carry the mask of its "
                "filler: make the records dicts."
            )
        return batch


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TakeDataset(DatasetOp):
    """The first batches.

    Attributes:
      parent: The data set.
      num_examples: Number of batches.
    """

    num_examples: int

    def __post_init__(self) -> None:
        if self.num_examples < 0:
            raise ValueError(f"take({self.num_examples}): the number is negative.")

    def __len__(self) -> int:
        try:
            return min(self.num_examples, len(self.parent))
        except TypeError:
            return self.num_examples

    def first(self) -> Any:
        if not self.num_examples:
            raise ValueError("take(0) has no batch.")
        return self.parent.first()

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        return op_iterators.TakeIterator(iterator, self.num_examples)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CacheDataset(DatasetOp):
    """Batches that are kept in memory once all of them were read.

    Attributes:
      parent: The data set. It must have a length.
    """

    _kept: op_iterators.KeptBatches = dataclasses.field(
        default_factory=op_iterators.KeptBatches, init=False, repr=False
    )

    def __post_init__(self) -> None:
        try:
            len(self.parent)
        except TypeError as error:
            raise TypeError(
                "cache() needs data with a known length: use `.take(n)` before"
                f" `.cache()`. ({error})"
            ) from None

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        return op_iterators.CacheIterator(iterator, self._kept)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrefetchDataset(DatasetOp):
    """Batches that a background thread gets ready.

    Pipelines of `kd.data.tf` that checkpoints hold are left as they are: TensorFlow
    reads ahead itself, see their `prefetch_size`.

    Attributes:
      parent: The data set.
      buffer_size: How many are kept ready.
    """

    buffer_size: int = 1

    def __post_init__(self) -> None:
        if self.buffer_size < 0:
            raise ValueError(f"prefetch({self.buffer_size}): the size is negative.")

    def first(self) -> Any:
        return self.parent.first()

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        # What saves itself, as `tf.data` does, does not know what was read ahead.
        saves_itself = not isinstance(
            iterator, PyGrainIterator | NonCheckpointableIterator
        )
        if not self.buffer_size or saves_itself:
            return op_iterators.OpIterator(iterator)
        return op_iterators.PrefetchIterator(iterator, self.buffer_size)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DevicePutDataset(DatasetOp):
    """Batches as `jax.Array`s.

    Attributes:
      parent: The data set.
      sharding: Where the arrays go; `None` for `kd.sharding.FIRST_DIM`.
    """

    sharding: Any = None

    def first(self) -> Any:
        return self._put(self.parent.first())

    def _wrap(self, iterator: Iterator) -> op_iterators.OpIterator:
        return op_iterators.MapIterator(iterator, self._put)

    def _put(self, batch: Any) -> Any:
        import jax

        from kauldron.sharding.placement import device_put

        # The train loop forbids transfers that nobody asked for; this one is wanted.
        with jax.transfer_guard("allow"):
            try:
                return device_put(batch, self.sharding)
            except (TypeError, ValueError) as error:
                error.add_note(f"The batch: {record_tree.describe(batch)}.")
                raise
