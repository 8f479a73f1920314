"""The next batches, read and placed on the devices before the loop asks for them."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from kauldron import status

if TYPE_CHECKING:
    from kauldron.data import DeviceRecords, DeviceTransforms
    from kauldron.train.trainer import Trainer


_LOOK_UP_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0
_PROFILE_SECONDS = 0.25


class Feeder:
    """Reads, stacks and places batches in a thread, ahead of the loop.

    `get_state` describes what the loop has received: what waits in the queue counts as
    not consumed.
    """

    def __init__(
        self,
        iterator: Any,
        destination: Destination,
        *,
        step: int,
        depth: int = 2,
        while_waiting: Callable[[], None] = lambda: None,
    ):
        """Prepare reading; it begins when the first feed is asked for.

        Args:
          iterator: The data iterator; with `get_state`, its position is tracked. Closed
            with the feeder.
          destination: How many batches a dispatch takes, and where they are placed.
          step: Number of the first step.
          depth: Another feed is prepared while fewer batches than this wait; 0 reads
            when asked, in the caller's thread.
          while_waiting: Called now and then while the data keeps the loop waiting; may
            raise.
        """
        self._iterator = iterator
        self._feeds = read_feeds(iterator, destination, step)
        self._position = position_of(iterator)
        self._while_waiting = while_waiting
        self._depth = depth
        self._ready: queue.SimpleQueue[Feed | BaseException] = queue.SimpleQueue()
        self._num_waiting = 0  # batches in `_ready`
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._end: BaseException | None = None  # after which nothing follows
        self._is_closed = False

    def __iter__(self) -> Iterator[Feed]:
        return self

    def __next__(self) -> Feed:
        """Return the next feed; raises what reading it raised."""
        item = self._end or (self._from_thread() if self._depth else self._read())
        if isinstance(item, BaseException):
            self._end = item
            raise item
        self._position = item.position
        return item

    def get_state(self) -> Any:
        """Position of the data iterator after what the loop has received."""
        return self._position

    def close(self) -> None:
        """Stop the thread and close the iterator; what was prepared is dropped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SECONDS)
            if self._thread.is_alive():
                status.log_warning(
                    "The data source still does not answer at the end of the run: its "
                    "thread is left running until the process ends."
                )
                return
        self._iterator.close()

    def _from_thread(self) -> Feed | BaseException:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._fill, name="kauldron-feeder", daemon=True
            )
            self._thread.start()
        while True:
            try:
                item = self._ready.get(timeout=_LOOK_UP_SECONDS)
            except queue.Empty:
                self._while_waiting()
            else:
                if isinstance(item, Feed):
                    self._add_waiting(-item.size)
                return item

    #
    # The producing side
    #

    def _fill(self) -> None:
        item: Feed | BaseException | None = None
        while not isinstance(item, BaseException):
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_closed or self._num_waiting < self._depth
                )
            if self._is_closed:
                return
            item = self._read()
            if isinstance(item, Feed):
                self._add_waiting(item.size)
            self._ready.put(item)

    def _add_waiting(self, count: int) -> None:
        with self._changed:
            self._num_waiting += count
            self._changed.notify()

    def _read(self) -> Feed | BaseException:
        """Return the next feed, or why there is none: the data ended, or an error."""
        try:
            return next(self._feeds)
        except BaseException as error:  # whatever it is, the loop must hear of it
            return error


#
# The batches of one dispatch
#


@dataclasses.dataclass(frozen=True)
class Feed:
    """Batches for one dispatch.

    Attributes:
      size: Number of batches.
      batch: The batch on the devices; with `size > 1`, that many stacked on a new
        leading axis, or in a list if each is the argument of a call of its own. Of
        records that live there: only their rows.
      position: State of the data iterator after these batches.
      is_rows: Whether `batch` holds rows of records.
    """

    size: int
    batch: Any
    position: Any
    is_rows: bool = False


class Destination(Protocol):
    """Where feeds go: how many batches a dispatch takes, and how they are placed."""

    @property
    def records(self) -> DeviceRecords | None: ...

    @property
    def in_calls(self) -> bool: ...

    def size_at(self, step: int) -> int: ...

    def put(self, batch: Any, size: int) -> Any: ...

    def put_rows(self, rows: np.ndarray) -> Any: ...


def read_feeds(iterator: Any, destination: Destination, step: int) -> Iterator[Feed]:
    """Return the feeds of a run, from the dispatch at `step` to the end of the data."""
    reader = _Reader(iterator, destination)
    while True:
        try:
            feeds = reader.read(destination.size_at(step))
        except StopIteration:
            return
        for feed in feeds:
            step += feed.size
            yield feed


def position_of(iterator: Any) -> Any:
    """Return where an iterator is; `None` if it cannot tell."""
    get_state = getattr(iterator, "get_state", None)
    return None if get_state is None else get_state()


class _Reader:
    def __init__(self, iterator: Any, destination: Destination):
        self._iterator = iterator
        self._to = destination
        # Iterators of other libraries are wrapped, and do not have these.
        inner = getattr(iterator, "iter", iterator)
        self._next_batches: Callable[[int], Any] | None = getattr(
            inner, "next_batches", None
        )
        self._next_positions: Callable[[int], np.ndarray] | None = None
        if destination.records is not None:
            self._next_positions = inner.next_positions

    def read(self, size: int) -> list[Feed]:
        """Up to `size` batches as one feed, or one by one where they do not stack."""
        if self._next_positions is not None:
            try:
                return [self._read_rows(size)]
            except StopIteration:  # what is left does not fill a batch
                self._next_positions = None
        if self._to.in_calls:
            return [self._read_for_calls(size)]
        if size > 1 and self._next_batches is not None:
            return [self._read_stacked(size)]
        return self._read_one_by_one(size)

    def _read_rows(self, size: int) -> Feed:
        assert self._next_positions is not None
        assert self._to.records is not None
        rows = self._to.records.rows(self._next_positions(size))
        size, put = len(rows), self._to.put_rows
        if size == 1:
            batch = put(rows[0])
        elif self._to.in_calls:
            batch = [put(row) for row in rows]
        else:
            batch = put(rows)
        return Feed(size, batch, position_of(self._iterator), is_rows=True)

    def _read_for_calls(self, size: int) -> Feed:
        # Each is put at once: another library may use its memory for the next one.
        batches = self._take(size, lambda batch: self._to.put(batch, 1))
        batch = batches if len(batches) > 1 else batches[0]
        return Feed(len(batches), batch, position_of(self._iterator))

    def _read_stacked(self, size: int) -> Feed:
        assert self._next_batches is not None
        batches = self._next_batches(size)
        size = len(jax.tree.leaves(batches)[0])
        if size == 1:
            batches = jax.tree.map(lambda leaf: leaf[0], batches)
        return Feed(size, self._to.put(batches, size), position_of(self._iterator))

    def _read_one_by_one(self, size: int) -> list[Feed]:
        taken = self._take(size, lambda batch: (batch, position_of(self._iterator)))
        batches = [batch for batch, _ in taken]
        if len(batches) > 1 and _have_equal_shapes(batches):
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
            count = len(batches)
            return [Feed(count, self._to.put(stacked, count), taken[-1][1])]
        return [Feed(1, self._to.put(batch, 1), position) for batch, position in taken]

    def _take(self, size: int, prepare: Callable[[Any], Any]) -> list[Any]:
        """Read some batches, fewer at the end of the data; raise if there are none."""
        taken = [prepare(next(self._iterator))]
        with contextlib.suppress(StopIteration):
            while len(taken) < size:
                taken.append(prepare(next(self._iterator)))
        return taken


def _have_equal_shapes(batches: list[Any]) -> bool:
    shapes = [
        [(np.shape(leaf), np.result_type(leaf)) for leaf in jax.tree.leaves(batch)]
        for batch in batches
    ]
    return all(shape == shapes[0] for shape in shapes)


#
# Training that waits for its data
#


class DataWaitHint:
    """Says once that training waits for data, when it has done so for a while.

    Only then are a few records read again, in a thread, to find the slowest stage.

    Attributes:
      slowest: The stage of the pipeline that takes longest, once it is known.
    """

    HIGH_FRACTION = 0.2
    PATIENCE_SECONDS = 20.0
    PATIENCE_WRITES = 3

    def __init__(self, trainer: Trainer, *, transforms: DeviceTransforms | None = None):
        """Begin to look; `transforms` are not done on the host."""
        self.slowest: str | None = None
        self._trainer = trainer
        self._num_moved = len(transforms.entries) if transforms else 0
        self._since: float | None = None
        self._count = 0
        self._is_told = False

    def add(self, perf_stats: Mapping[str, float]) -> None:
        """Look at the times of one more write of metrics."""
        fraction = perf_stats.get("data_wait_fraction", 0.0)
        if fraction <= self.HIGH_FRACTION:
            self._since, self._count = None, 0
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._count += 1
        is_long = now - self._since >= self.PATIENCE_SECONDS
        if not is_long or self._count < self.PATIENCE_WRITES or self._is_told:
            return
        self._is_told = True
        if status.is_lead_host:
            threading.Thread(
                target=self._tell, args=(fraction,), name="data-wait", daemon=True
            ).start()

    def _tell(self, fraction: float) -> None:
        status.log_warning(
            f"Training waits for data {100 * fraction:.0f} % of the time."
            f"{self._describe_slowest()} What each stage of the pipeline costs: kauldron"
            f" data profile --cfg={self._trainer.workdir}"
        )

    def _describe_slowest(self) -> str:
        ds: Any = self._trainer.train_ds
        if not hasattr(ds, "profile"):
            return ""
        try:
            costs = ds.profile(seconds=_PROFILE_SECONDS, num_left_out=self._num_moved)
        except Exception:  # training meets the same error, and says where
            return ""
        name, cost = max(costs.stages.items(), key=lambda item: item[1].total)
        self.slowest = name
        total = sum(cost.total for cost in costs.stages.values())
        text = (
            f" The slowest stage is {name}: {1e3 * cost.total:.2g} of the"
            f" {1e3 * total:.2g} ms that a record takes."
        )
        if not getattr(ds, "num_workers", "auto") and costs.builders.count > 1:
            text += f" `cfg.train_ds.num_workers='auto'` takes {costs.builders}."
        return text
