"""Iterators over batches, as checkpoints see them (`kd.data.iters`).

Iterating a data set gives an `Iterator` that can be saved and restored. The iterators of
map, take, cache and prefetch hand on the state of the one below, at the place that the
*consumer* has reached.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from kauldron.data.engine import trees
from kauldron.data.engine.executors import ThreadExecutor
from kauldron.data.engine.iterator import stack_next
from kauldron.lazy_namespace import lazy_imports

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from kauldron.data.dataset import IterableDataset


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
        """Return where the consumer is: JSON, cheap."""

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

    # An item of a checkpoint.

    @abc.abstractmethod
    def __kd_ocp_handlers__(self) -> Any: ...

    @abc.abstractmethod
    def __kd_ocp_save_args__(self) -> Any: ...

    @abc.abstractmethod
    def __kd_ocp_restore_args__(self) -> Any: ...

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        """Return the iterator after its item was read: itself, at the saved place."""
        return self


def as_iterator(dataset: IterableDataset) -> Iterator:
    """Return an `Iterator` over a data set, whatever its `__iter__` returns."""
    iterator = iter(dataset)
    if isinstance(iterator, Iterator):
        return iterator
    if hasattr(iterator, "get_state") and hasattr(iterator, "set_state"):
        return PyGrainIterator(source=dataset, iter=iterator)
    return NonCheckpointableIterator(source=dataset, iter=iterator)


def wrap_like(parent: Iterator, *, source: IterableDataset, iterator: Any) -> Iterator:
    """Return the iterator of an operation, saved in the way its parent is saved."""
    if isinstance(parent, PyGrainIterator):
        return PyGrainIterator(source=source, iter=iterator)
    if isinstance(parent, NonCheckpointableIterator):
        return NonCheckpointableIterator(source=source, iter=iterator)
    root = parent.root if isinstance(parent, ForwardingIterator) else parent
    return ForwardingIterator(source=source, iter=iterator, root=root)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WrappingIterator(Iterator):
    """Gives the batches of another iterator.

    Attributes:
      source: The data set it iterates over.
      iter: The other iterator.
    """

    iter: Any

    def __next__(self) -> Any:
        return next(self.iter)

    def close(self) -> None:
        if hasattr(self.iter, "close"):
            self.iter.close()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PyGrainIterator(WrappingIterator):
    """An iterator whose position is saved as one JSON file per process.

    Attributes:
      source: The data set it iterates over.
      iter: Anything with `__next__`, `get_state` and `set_state`: ours, or a
        `grain.DatasetIterator`.
    """

    def next_batches(self, count: int) -> Any:
        """Up to `count` batches stacked on a new leading axis, built in one go.

        Fewer come at the end of the data, and before a smaller last batch.
        """
        if hasattr(self.iter, "next_batches"):
            return self.iter.next_batches(count)
        return stack_next(self, count)

    def next_positions(self, count: int) -> Any:
        """Stream positions of the next batches, which are skipped.

        For `kd.data.DeviceRecords`.
        """
        return self.iter.next_positions(count)

    def get_state(self) -> dict[str, Any]:
        return self.iter.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.iter.set_state(dict(state))

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.PyGrainCheckpointHandler()

    def __kd_ocp_save_args__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.PyGrainCheckpointSave(self.get_state())

    def __kd_ocp_restore_args__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.PyGrainCheckpointRestore()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self.set_state(value)
        return self


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NonCheckpointableIterator(WrappingIterator):
    """Any Python iterator. Its position is not saved.

    Attributes:
      source: The data set it iterates over.
      iter: The iterator.
    """

    def get_state(self) -> dict[str, Any]:
        """Return an empty state: the position is unknown."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Warn: the position is unknown, so the data goes on from where it is."""
        self._warn()

    def __kd_ocp_handlers__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.NoopHandler()

    def __kd_ocp_save_args__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.NoopArg()

    def __kd_ocp_restore_args__(self) -> Any:
        from kauldron.data import checkpointing

        return checkpointing.NoopArg(self)

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self._warn()
        return self

    def _warn(self) -> None:
        _log.warning(
            "The iterator over %s cannot be restored: the data restarts from the"
            " beginning, so early records are seen more often. Give its __iter__'s"
            " result get_state() and set_state() to change that.",
            type(self.source).__name__,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingIterator(WrappingIterator):
    """The iterator of an operation over one that is saved in its own way.

    Attributes:
      source: The operation's data set.
      iter: The operation's iterator.
      root: The iterator that is saved and restored.
    """

    root: Iterator

    def get_state(self) -> dict[str, Any]:
        return self.root.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.root.set_state(state)

    def __kd_ocp_handlers__(self) -> Any:
        return self.root.__kd_ocp_handlers__()

    def __kd_ocp_save_args__(self) -> Any:
        return self.root.__kd_ocp_save_args__()

    def __kd_ocp_restore_args__(self) -> Any:
        return self.root.__kd_ocp_restore_args__()

    def __kd_ocp_restore_post__(self, value: Any) -> Self:
        self.root.__kd_ocp_restore_post__(value)
        return self


# ----------------------------------------------------------------------------
# The iterators of operations
# ----------------------------------------------------------------------------


class OpIterator:
    """Passes on the batches and the state of the parent."""

    def __init__(self, parent: Iterator):
        self._parent = parent

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> dict[str, Any]:
        return self._parent.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._parent.set_state(state)

    def close(self) -> None:
        self._parent.close()


class MapIterator(OpIterator):
    """Applies a function to each batch."""

    def __init__(self, parent: Iterator, map_fn: Callable[[Any], Any]):
        super().__init__(parent)
        self._map_fn = map_fn

    def __next__(self) -> Any:
        return self._map_fn(next(self._parent))


def put_on_devices(batch: Any, sharding: Any) -> Any:
    """Return the batch as `jax.Array`s; `None` stands for `kd.sharding.FIRST_DIM`."""
    import jax

    from kauldron.sharding.tree import device_put

    # The train loop forbids transfers that nobody asked for; this one is wanted.
    with jax.transfer_guard("allow"):
        try:
            return device_put(batch, sharding)
        except (TypeError, ValueError) as error:
            error.add_note(f"The batch: {trees.describe(batch)}.")
            raise


class TakeIterator(OpIterator):
    """Ends after some batches; the state knows how many came already."""

    def __init__(self, parent: Iterator, count: int):
        super().__init__(parent)
        self._count = count
        self._taken = 0

    def __next__(self) -> Any:
        if self._taken >= self._count:
            raise StopIteration
        batch = next(self._parent)
        self._taken += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        state = self._parent.get_state()
        return {**state, "taken": [self._taken, *state.get("taken", [])]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        taken, *below = state.get("taken", [0])
        self._parent.set_state({**state, "taken": below} if below else state)
        self._taken = taken


KeptBatch = tuple[Any, dict[str, Any]]  # with the state after it


class CacheIterator(OpIterator):
    """Reads the parent once; afterwards gives what was kept of the first full pass."""

    def __init__(self, parent: Iterator, kept: list[KeptBatch]):
        super().__init__(parent)
        self._kept = kept
        self._state = parent.get_state()
        self._collected: list[KeptBatch] | None = []
        self._next = 0

    def __next__(self) -> Any:
        if not self._kept:
            return self._read()
        if self._next >= len(self._kept):
            raise StopIteration
        batch, self._state = self._kept[self._next]
        self._next += 1
        return batch

    def _read(self) -> Any:
        try:
            batch = next(self._parent)
        except StopIteration:
            self._kept[:] = self._collected or []
            raise
        except Exception:
            self._collected = None  # what follows may not be all of the rest
            raise
        self._next += 1
        self._state = self._parent.get_state()
        if self._collected is not None:
            self._collected.append((batch, self._state))
        return batch

    def get_state(self) -> dict[str, Any]:
        return self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)
        states = [after for _, after in self._kept]
        if self._state in states:
            self._next = states.index(self._state) + 1
            return
        self._parent.set_state(state)
        self._kept = []  # the rest of a pass is not a full pass
        self._collected = None


class PrefetchIterator(OpIterator):
    """A thread reads ahead; each batch comes with the state after it."""

    def __init__(self, parent: Iterator, buffer_size: int):
        super().__init__(parent)
        self._buffer_size = buffer_size
        self._state = parent.get_state()
        self._executor: ThreadExecutor | None = None

    def __next__(self) -> Any:
        if self._executor is None:
            read = _reader(self._parent)
            self._executor = ThreadExecutor(read, None, ahead=self._buffer_size)
        batch, state, error = self._executor.get()
        if error is not None:
            raise error
        self._state = state
        return batch

    def get_state(self) -> dict[str, Any]:
        return self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._stop()
        self._parent.set_state(state)
        self._state = dict(state)

    def close(self) -> None:
        self._stop()
        self._parent.close()

    def _stop(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()


def _reader(parent: Iterator) -> Callable[[int], Any]:
    """Return what the thread runs; it must not hold the iterator, or that never ends.

    Errors (and the end of the data) wait in line with the batches: the consumer meets
    them where they happened, and what was read after them is not lost.
    """

    def read(unit: int) -> Any:
        del unit
        try:
            return next(parent), parent.get_state(), None
        except BaseException as error:
            return None, {}, error

    return read


# The handlers import Orbax, and TFDataIterator belongs to TensorFlow.
with lazy_imports(__name__):
    from kauldron.data.checkpointing import NoopArg as NoopArg
    from kauldron.data.checkpointing import NoopHandler as NoopHandler
    from kauldron.data.checkpointing import (
        PyGrainCheckpointHandler as PyGrainCheckpointHandler,
    )
    from kauldron.data.checkpointing import (
        PyGrainCheckpointRestore as PyGrainCheckpointRestore,
    )
    from kauldron.data.checkpointing import (
        PyGrainCheckpointSave as PyGrainCheckpointSave,
    )
    from kauldron.data.tf.iterator import TFDataIterator as TFDataIterator
