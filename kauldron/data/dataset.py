"""The interface of everything that yields batches, and the operations on it.

`map`, `take`, `cache`, `prefetch` and `device_put` each make a new data set that reads
from its parent. Their iterators are in `iters`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kauldron.batch_mask import (
    BATCH_MASK,
    UnmaskableError,
    with_mask_of,
    without_mask,
)
from kauldron.data import iters
from kauldron.data.engine import trees
from kauldron.data.engine.batches import DropRemainder
from kauldron.data.iters import (
    Iterator,
    NonCheckpointableIterator,
    PyGrainIterator,
    as_iterator,
    wrap_like,
)
from kauldron.data.specs import ArraySpec, specs_of
from kauldron.errors import a_type


class IterableDataset(abc.ABC):
    """A data set to iterate over, any number of times; every `iter` starts over."""

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """The tree of one batch of this process, with `ArraySpec` in place of arrays."""

    @abc.abstractmethod
    def __iter__(self) -> Any: ...

    def __len__(self) -> int:
        """Number of batches.

        Raises:
          TypeError: It is not known, or there is no end.
        """
        raise TypeError(
            f"The number of batches of {type(self).__name__} is unknown: iterate over it, "
            "or define `__len__`."
        )

    @property
    def gives_single_records(self) -> bool:
        """Whether `batch_size=0` asks for records and nothing else makes batches."""
        return False

    def first(self) -> Any:
        """Return the first batch."""
        with as_iterator(self) as iterator:
            for batch in iterator:
                return batch
        raise ValueError(
            f"{self!r:.200} has no batch: it has no records, or fewer than `batch_size`."
        )

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        """Return the same data with another last batch, where there is a choice.

        A batch that is filled up carries a mask that losses and metrics find by
        themselves. What was read from disk is shared with the original.

        Args:
          remainder: What happens to the last, smaller batch.
        """
        del remainder
        return self

    def map(self, map_fn: Callable[[Any], Any]) -> MapDataset:
        """Apply a function to each batch."""
        return MapDataset(parent=self, map_fn=map_fn)

    def take(self, num_examples: int) -> TakeDataset:
        """Return the first batches.

        Args:
          num_examples: How many batches (not records, whatever the name says).
        """
        return TakeDataset(parent=self, num_examples=num_examples)

    def cache(self) -> CacheDataset:
        """Keep the batches in memory during the first pass, for the later ones."""
        return CacheDataset(parent=self)

    def prefetch(self, buffer_size: int = 1) -> PrefetchDataset:
        """Let a background thread keep batches ready.

        Args:
          buffer_size: How many; 0 for none, and no thread.
        """
        return PrefetchDataset(parent=self, buffer_size=buffer_size)

    def device_put(self, sharding: Any = None) -> DevicePutDataset:
        """Yield batches as `jax.Array`s.

        Args:
          sharding: A sharding, a tree of shardings that is a prefix of the batch, or a
            function from batch to such a tree. By default `kd.sharding.FIRST_DIM`: the
            first dimension is split over all devices.
        """
        return DevicePutDataset(parent=self, sharding=sharding)


def shared_class_names(datasets: Iterable[Any]) -> tuple[str, ...] | None:
    """Return the names of the classes on which all data sets agree, or `None`.

    Args:
      datasets: Those that make up one. One that does not know any names agrees with none.
    """
    found = [getattr(ds, "class_names", None) for ds in datasets]
    known = {None if names is None else tuple(names) for names in found}
    return known.pop() if len(known) == 1 else None


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

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the parent does not know them."""
        return shared_class_names([self.parent])

    def __iter__(self) -> Iterator:
        parent = as_iterator(self.parent)
        return wrap_like(parent, source=self, iterator=self._wrap(parent))

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        parent = self.parent.with_remainder(remainder)
        return (
            self if parent is self.parent else dataclasses.replace(self, parent=parent)
        )

    @abc.abstractmethod
    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        """Return the iterator of this operation over one of the parent."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MapDataset(DatasetOp):
    """A function applied to each batch. It does not see the mask of a padded batch."""

    map_fn: Callable[[Any], Any]

    @functools.cached_property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return specs_of(self.first())

    @property
    def gives_single_records(self) -> bool:
        return False  # the function may make batches

    def first(self) -> Any:
        return self._apply(self.parent.first())

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        return iters.MapIterator(iterator, self._apply)

    def _apply(self, batch: Any) -> Any:
        return with_mask_of(batch, self.map_fn(without_mask(batch)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PadDataset(DatasetOp):
    """Batches that are filled up to one size, with the mask of what is real."""

    size: int  # of a batch on this process

    @property
    def element_spec(self) -> Any:
        spec = self.parent.element_spec
        if not isinstance(spec, dict):
            return spec
        spec = trees.map_leaves(
            lambda leaf: ArraySpec((self.size, *leaf.shape[1:]), leaf.dtype), spec
        )
        return {**spec, BATCH_MASK: ArraySpec((self.size,), bool)}

    def first(self) -> Any:
        return self._pad(self.parent.first())

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        return iters.MapIterator(iterator, self._pad)

    def _pad(self, batch: Any) -> Any:
        sizes = {np.shape(leaf)[:1] for _, leaf in trees.leaves_with_paths(batch)}
        if len(sizes) != 1 or sizes == {()}:
            return batch  # nothing says how many records there are
        ((real,),) = sizes
        if real < self.size:
            batch = trees.pad_rows(batch, self.size)
        if isinstance(batch, dict):
            return {**batch, BATCH_MASK: np.arange(max(real, self.size)) < real}
        if real < self.size:
            raise UnmaskableError(
                f"a batch that is {a_type(batch)} cannot carry the mask of its "
                "filler: make the records dicts."
            )
        return batch


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TakeDataset(DatasetOp):
    """The first batches."""

    num_examples: int  # of batches: the name is that of `take`

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

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        return iters.TakeIterator(iterator, self.num_examples)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CacheDataset(DatasetOp):
    """Batches that are kept in memory once all of them were read."""

    _kept: list[iters.KeptBatch] = dataclasses.field(
        default_factory=list, init=False, repr=False
    )

    def __post_init__(self) -> None:
        try:
            len(self.parent)
        except TypeError as error:
            raise TypeError(
                "cache() needs data with a known length: use `.take(n)` before"
                f" `.cache()`. ({error})"
            ) from None

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        return iters.CacheIterator(iterator, self._kept)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrefetchDataset(DatasetOp):
    """Batches that a background thread gets ready.

    Pipelines of `kd.data.tf` that checkpoints hold are left as they are: TensorFlow
    reads ahead itself, see their `prefetch_size`.
    """

    buffer_size: int = 1

    def __post_init__(self) -> None:
        if self.buffer_size < 0:
            raise ValueError(f"prefetch({self.buffer_size}): the size is negative.")

    def first(self) -> Any:
        return self.parent.first()

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        # What saves itself, as `tf.data` does, does not know what was read ahead.
        saves_itself = not isinstance(
            iterator, PyGrainIterator | NonCheckpointableIterator
        )
        if not self.buffer_size or saves_itself:
            return iters.OpIterator(iterator)
        return iters.PrefetchIterator(iterator, self.buffer_size)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DevicePutDataset(DatasetOp):
    """Batches as `jax.Array`s."""

    sharding: Any = None

    def first(self) -> Any:
        return iters.put_on_devices(self.parent.first(), self.sharding)

    def _wrap(self, iterator: Iterator) -> iters.OpIterator:
        put = functools.partial(iters.put_on_devices, sharding=self.sharding)
        return iters.MapIterator(iterator, put)
