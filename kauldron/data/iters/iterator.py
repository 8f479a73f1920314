"""What iterating a data set gives: an iterator that checkpoints know how to save."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from kauldron.data.iterable_dataset import IterableDataset


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Iterator(abc.ABC):
    """A Python iterator over batches that is also an item of a checkpoint.

    Attributes:
      source: The data set it iterates over.
    """

    source: IterableDataset

    def __iter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __next__(self) -> Any: ...

    def __len__(self) -> int:
        return len(self.source)

    @property
    def element_spec(self) -> Any:
        """Shapes and dtypes of a batch of this process."""
        return self.source.element_spec

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Where the consumer is: JSON, cheap."""

    @abc.abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `get_state` gave."""

    @abc.abstractmethod
    def close(self) -> None:
        """End threads and processes. The iterator cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abc.abstractmethod
    def __kd_ocp_handlers__(self) -> Any: ...

    @abc.abstractmethod
    def __kd_ocp_save_args__(self) -> Any: ...

    @abc.abstractmethod
    def __kd_ocp_restore_args__(self) -> Any: ...

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        """The iterator once its item was read: itself, moved to the saved place."""
        return self


def as_iterator(dataset: IterableDataset, iterator: Any = None) -> Iterator:
    """An `Iterator` over a data set, whatever its `__iter__` returns.

    Args:
      dataset: The data set.
      iterator: What to wrap; by default `iter(dataset)`.
    """
    from kauldron.data.iters.non_checkpointable import NonCheckpointableIterator
    from kauldron.data.iters.py_grain_iterator import PyGrainIterator

    iterator = iter(dataset) if iterator is None else iterator
    if isinstance(iterator, Iterator):
        return iterator
    if hasattr(iterator, "get_state") and hasattr(iterator, "set_state"):
        return PyGrainIterator(source=dataset, iter=iterator)
    return NonCheckpointableIterator(source=dataset, iter=iterator)


def wrap_like(parent: Iterator, *, source: IterableDataset, iterator: Any) -> Iterator:
    """The iterator of an operation, saved in the way its parent is saved."""
    from kauldron.data.iters.forwarding import ForwardingIterator
    from kauldron.data.iters.non_checkpointable import NonCheckpointableIterator
    from kauldron.data.iters.py_grain_iterator import PyGrainIterator

    if isinstance(parent, PyGrainIterator):
        return PyGrainIterator(source=source, iter=iterator)
    if isinstance(parent, NonCheckpointableIterator):
        return NonCheckpointableIterator(source=source, iter=iterator)
    root = parent.root if isinstance(parent, ForwardingIterator) else parent
    return ForwardingIterator(source=source, iter=iterator, root=root)
