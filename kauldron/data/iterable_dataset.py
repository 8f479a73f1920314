"""The interface of everything that yields batches, and the operations on it."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kauldron.data import dataset_ops
    from kauldron.data.drop_remainder import DropRemainder


class IterableDataset(abc.ABC):
    """Something to iterate over, as often as one likes; every `iter` starts anew."""

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
        raise TypeError(f"The number of batches of {type(self).__name__} is unknown.")

    @property
    def gives_single_records(self) -> bool:
        """Whether `batch_size=0` asks for records and nothing else makes batches."""
        return False

    def first(self) -> Any:
        """The first batch."""
        from kauldron.data.iters.iterator import as_iterator

        with as_iterator(self) as iterator:
            for batch in iterator:
                return batch
        raise ValueError(f"{self!r} has no batch.")

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        """The same data with another last batch, where there is a choice.

        A batch that is filled up carries a mask that losses and metrics find by
        themselves. What was read from disk is shared with the original.

        Args:
          remainder: What happens to the last, smaller batch.
        """
        del remainder
        return self

    def map(self, map_fn: Callable[[Any], Any]) -> dataset_ops.MapDataset:
        """Apply a function to each batch."""
        from kauldron.data.dataset_ops import MapDataset

        return MapDataset(parent=self, map_fn=map_fn)

    def take(self, num_examples: int) -> dataset_ops.TakeDataset:
        """The first batches.

        Args:
          num_examples: How many batches (not records, whatever the name says).
        """
        from kauldron.data.dataset_ops import TakeDataset

        return TakeDataset(parent=self, num_examples=num_examples)

    def cache(self) -> dataset_ops.CacheDataset:
        """Keep the batches in memory during the first pass, for the later ones."""
        from kauldron.data.dataset_ops import CacheDataset

        return CacheDataset(parent=self)

    def prefetch(self, buffer_size: int = 1) -> dataset_ops.PrefetchDataset:
        """Let a background thread keep batches ready.

        Args:
          buffer_size: How many; 0 for none, and no thread.
        """
        from kauldron.data.dataset_ops import PrefetchDataset

        return PrefetchDataset(parent=self, buffer_size=buffer_size)

    def device_put(self, sharding: Any = None) -> dataset_ops.DevicePutDataset:
        """Yield batches as `jax.Array`s.

        Args:
          sharding: A sharding, a tree of shardings that is a prefix of the batch, or a
            function from batch to such a tree. By default `kd.sharding.FIRST_DIM`: the
            first dimension is split over all devices.
        """
        from kauldron.data.dataset_ops import DevicePutDataset

        return DevicePutDataset(parent=self, sharding=sharding)
