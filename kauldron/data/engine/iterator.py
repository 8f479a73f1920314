"""The iterator over the batches of a stream: deterministic, resumable, closable.

Its state is JSON. Where records are missing (filters), a `Rebatcher` puts full batches
together from what is there.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kauldron.data.engine import trees
from kauldron.data.engine.batches import BatchJob, DensePlan, Piece, SparsePlan
from kauldron.data.engine.executors import Executor
from kauldron.errors import BeyondDataError

_log = logging.getLogger(__name__)


class BatchIterator:
    """Batches of a job, built by an executor or by the caller.

    Args:
      job: What to build.
      make_executor: Starts the executor of a job, at its first unit. Where there is
        none, or it gives `None`, each unit is built when it is asked for.
      name: Of the pipeline, for messages.
      max_skipped: How many bad records may be left out.
    """

    def __init__(
        self,
        job: BatchJob,
        make_executor: Callable[[BatchJob], Executor | None] | None = None,
        *,
        name: str,
        max_skipped: int = 0,
    ):
        self._job = job
        self._make_executor = make_executor
        self._name = name
        self._max_skipped = max_skipped
        self._num_skipped = 0
        self._is_closed = False
        self._executor: Executor | None = None
        self._has_started = False
        self._go_to(job.plan.start)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._check_open()
        if self._rebatcher is None:
            piece = self._next_piece()
            if piece.survivors is None:
                self._position = self._job.plan.position_after(self._units)
                return piece.value
            self._expect_holes(piece.survivors)
        return self._next_of_survivors()

    def next_batches(self, count: int) -> Any:
        """Return the next batches stacked on a new leading axis, built in one go.

        Fewer than `count` come at the end of the data, and before a batch that is
        smaller than the others.
        """
        self._check_open()
        units = self._full_units(count)
        if not units or self._running_executor() is not None:
            return stack_next(self, count)
        batches = self._job.build_stacked(units)
        if self._job.skipped is not None:
            self._note_skipped(self._job.skipped.drain())
        if batches is None:  # records are missing
            return stack_next(self, count)
        self._units += len(units)
        self._position = self._job.plan.position_after(self._units)
        return batches

    def next_positions(self, count: int) -> np.ndarray:
        """Stream positions of the next full batches, `int64[count, batch]`; skips them.

        For data that lives on the device: only these numbers travel. Fewer batches come
        at the end of the data, and before a batch that is smaller than the others.
        """
        self._check_open()
        units = self._full_units(count)
        if not units:
            raise StopIteration
        plan = self._job.plan
        assert isinstance(plan, DensePlan)
        positions = plan.starts(units)[:, None] + np.arange(plan.local_batch_size)
        self._go_to(plan.position_after(units.stop))
        return positions

    def leave_out_last(self, count: int) -> None:
        """From here on, leave the last transforms to the consumer."""
        self._job = self._job.without_last(count)
        self._go_to(self._position)

    def get_state(self) -> dict[str, Any]:
        """Return the consumer's position as JSON; what was built ahead does not count."""
        plan = self._job.plan
        return {
            "next_index": self._position
            // (1 if self._is_local else self._num_sharing),
            "global_index": None if self._is_local else self._position,
            "process_count": self._num_sharing,
            "batch_size": plan.batch_size,
            "num_records": plan.length,
            "version": 1,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where another iterator was, also one of another number of processes.

        Raises:
          ValueError: The state was written by something else, or by another number of
            processes where each has its own position.
          BeyondDataError: The position lies beyond the data.
        """
        self._check_open()
        self._go_to(self._position_from(state))

    def close(self) -> None:
        """End all threads and processes of the iterator."""
        self._stop_executor()
        self._is_closed = True

    # ------------------------------------------------------------------------
    # Position
    # ------------------------------------------------------------------------

    def _go_to(self, position: int) -> None:
        self._stop_executor()
        if position != self._job.plan.start:
            self._job = self._job.starting_at(position)
        self._position = position
        self._has_ended = False
        self._units = 0  # taken from the executor
        self._walked = 0  # positions since the last record, where some are missing
        is_sparse = isinstance(self._job.plan, SparsePlan)
        self._rebatcher = Rebatcher(self._job) if is_sparse else None

    @property
    def _num_sharing(self) -> int:
        """How many processes share the stream."""
        return (self._job.owner or self._job.plan.share).count

    @property
    def _is_local(self) -> bool:
        """Whether every process has a position of its own (filters, grain)."""
        return self._job.owner is not None or isinstance(self._job.plan, SparsePlan)

    def _position_from(self, state: Mapping[str, Any]) -> int:
        plan, name = self._job.plan, self._name
        next_index = _next_index(state, name)
        count = state.get("process_count") or self._num_sharing
        if self._is_local and count != self._num_sharing:
            raise ValueError(
                f"The state of {name} was saved by {count} processes and cannot be"
                f" restored by {self._num_sharing}: with filters, or through grain, each"
                " process has a position of its own. Only dense built-in pipelines can"
                " change the number of processes."
            )
        position = next_index if self._is_local else state.get("global_index")
        if position is None:
            position = next_index * count
        if position < 0 or (plan.total is not None and position > plan.total):
            raise BeyondDataError(
                f"The saved position of {name} is after {position} records, but the data"
                f" has only {plan.total} (over all epochs): it is shorter than when the"
                " run was saved. Set the same data as before, or more `num_epochs`."
            )
        saved = state.get("num_records")
        if saved is not None and saved != plan.length:
            _log.warning(
                "%s has %d records now, but had %d when its position was saved; the"
                " order of the running epoch changes.",
                name,
                plan.length,
                saved,
            )
        return position

    def _full_units(self, count: int) -> range:
        """Return the next units that are batches of full size."""
        plan = self._job.plan
        if isinstance(plan, SparsePlan) or not plan.batch_size:
            return range(0)
        stop = self._units + count
        if plan.num_units is not None:
            stop = min(stop, plan.num_units)
        units = range(self._units, stop)
        if plan.remainder == "drop" or not plan.may_be_short:
            return units
        return units[: sum(1 for _ in itertools.takewhile(plan.is_full, units))]

    # ------------------------------------------------------------------------
    # Units
    # ------------------------------------------------------------------------

    def _running_executor(self) -> Executor | None:
        if not self._has_started and self._make_executor is not None:
            self._executor = self._make_executor(self._job)
        self._has_started = True
        return self._executor

    def _next_piece(self) -> Piece:
        if self._has_ended:
            raise StopIteration
        executor = self._running_executor()
        try:
            piece = self._build_next() if executor is None else executor.get()
            if piece.skipped:
                self._note_skipped(piece.skipped)
        except StopIteration:
            self._has_ended = True
            self._stop_executor()
            raise
        except BaseException:  # interrupts too: a message may have been half read
            self._go_to(self._position)  # the next call tries again
            raise
        self._units += 1
        return piece

    def _build_next(self) -> Piece:
        count = self._job.plan.num_units
        if count is not None and self._units >= count:
            raise StopIteration
        return self._job.build(self._units)

    def _note_skipped(self, messages: Sequence[str]) -> None:
        for message in messages:
            self._num_skipped += 1
            _log.warning("Skipped bad record %d: %s", self._num_skipped, message)
        if self._num_skipped > self._max_skipped:
            raise ValueError(
                f"{self._num_skipped} bad records in {self._name}, more than"
                f" max_bad_records={self._max_skipped} allows. The last: {messages[-1]}"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(
                f"The iterator over {self._name} is closed: make a new one with `iter(ds)`."
            )

    def _stop_executor(self) -> None:
        executor, self._executor = self._executor, None
        self._has_started = False
        if executor is not None:
            executor.close()

    # ------------------------------------------------------------------------
    # Streams in which records are missing
    # ------------------------------------------------------------------------

    def _expect_holes(self, survivors: np.ndarray) -> None:
        """Go on as with a filter: a transform dropped a record without being one."""
        plan = self._job.plan
        if plan.share.count > 1:
            positions = plan.positions(self._units - 1)
            missing = sorted(set(positions) - set(survivors.tolist()))
            raise ValueError(
                f"A transform returned None for {self._job.node.locate(missing[0])}: it"
                " would be left out on this process alone, and the processes would"
                " lose step. Use a kd.data.FilterTransform, which pipelines know about."
            )
        fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
        self._job = dataclasses.replace(self._job, plan=SparsePlan(**fields))
        self._go_to(self._position)

    def _next_of_survivors(self) -> Any:
        rebatcher, plan = self._rebatcher, self._job.plan
        assert rebatcher is not None
        while not rebatcher.finished:
            try:
                piece = self._next_piece()
            except StopIteration:
                rebatcher.flush()
                if not rebatcher.finished:
                    raise
            else:
                self._check_progress(piece)
                rebatcher.add(piece)
        batch, last = rebatcher.finished.pop(0)
        self._position = (last - plan.share.index) // plan.share.count + 1
        return batch

    def _check_progress(self, piece: Piece) -> None:
        plan = self._job.plan
        assert piece.survivors is not None
        num_positions = len(plan.positions(self._units - 1))
        self._walked = 0 if len(piece.survivors) else self._walked + num_positions
        if plan.total is None and self._walked >= plan.length:
            names = self._job.node.filter_names() or ["a transform that returns None"]
            raise RuntimeError(
                f"A whole epoch of {self._name} ({plan.length} records) holds no record"
                f" that passes: {', '.join(names)}."
            )


def _next_index(state: Mapping[str, Any], name: str) -> int:
    if "iterators_in_use_states" in state or "workers_state" in state:
        raise ValueError(
            f"The saved state of {name} was written by grain's worker processes, one"
            " position per worker; it does not say which records were consumed and"
            " cannot be restored. Restore the checkpoint without the data iterator."
        )
    next_index = state.get("next_index")
    if not isinstance(next_index, int):
        raise ValueError(
            f"This is not a state of {name}: expected 'next_index' to be an integer; the"
            f" state is {dict(state)!r}."
        )
    return next_index


# ----------------------------------------------------------------------------
# Batches of what survives
# ----------------------------------------------------------------------------


class Rebatcher:
    """Takes survivors in stream order and gives batches (or records) of them."""

    def __init__(self, job: BatchJob):
        self._job = job
        self._cut_every = job.plan.length if job.plan.cut_epochs else None
        self._is_batched = job.plan.batch_size is not None
        self._size = job.plan.local_batch_size
        self._parts: list[Any] = []
        self._positions = np.zeros(0, np.int64)
        self.finished: list[tuple[Any, int]] = []  # (batch, its last position)

    def add(self, piece: Piece) -> None:
        """Take in what survived of the next span."""
        assert piece.survivors is not None
        positions, value = piece.survivors, piece.value
        if not len(positions):
            return
        if self._cut_every is None:
            self._add(value, positions)
            return
        epochs = positions // self._cut_every
        for epoch in np.unique(epochs):
            rows = np.nonzero(epochs == epoch)[0]
            if len(self._positions) and self._positions[-1] // self._cut_every != epoch:
                self.flush()
            self._add(self._rows(value, slice(rows[0], rows[-1] + 1)), positions[rows])

    def flush(self) -> None:
        """Finish what does not fill a batch: the stream, or an epoch, has ended."""
        if not len(self._positions):
            return
        is_dropped = self._job.plan.remainder == "drop" and self._is_batched
        columns, positions = self._joined(), self._positions
        self._parts, self._positions = [], positions[:0]
        if not is_dropped:
            batch = self._job.finish(columns, len(positions))
            self.finished.append((batch, int(positions[-1])))

    def _add(self, value: Any, positions: np.ndarray) -> None:
        self._parts.append(value)
        self._positions = np.concatenate([self._positions, positions])
        if len(self._positions) < self._size:
            return
        joined, positions = self._joined(), self._positions
        whole = len(positions) // self._size * self._size
        for start in range(0, whole, self._size):
            rows = slice(start, start + self._size)
            batch = self._rows(joined, rows)
            if self._is_batched:
                batch = self._job.finish(batch, self._size)
            else:
                (batch,) = batch
            self.finished.append((batch, int(positions[rows][-1])))
        rest = slice(whole, len(positions))
        self._positions = positions[rest]
        self._parts = [self._rows(joined, rest)] if len(self._positions) else []

    def _rows(self, value: Any, rows: slice) -> Any:
        return trees.take_rows(value, rows) if self._is_batched else value[rows]

    def _joined(self) -> Any:
        if not self._is_batched:
            return [record for part in self._parts for record in part]
        try:
            return trees.concatenate(self._parts)
        except trees.RecordMismatchError as error:
            starts = np.cumsum([0, *(trees.num_rows(p) or 0 for p in self._parts)])
            names = [
                self._job.node.locate(int(self._positions[starts[part]]))
                for part in error.rows
            ]
            raise ValueError(error.described(*names)) from None


def stack_next(iterator: Any, count: int) -> Any:
    """Return the next batches of a checkpointable iterator, stacked on a new axis.

    Fewer than `count` come at the end of the data, and before a batch that does not look
    like the others (the last one, if it is smaller).
    """
    batches = [next(iterator)]
    form = trees.form(batches[0])
    while len(batches) < count:
        before = iterator.get_state()
        try:
            batch = next(iterator)
        except StopIteration:
            break
        if trees.form(batch) != form:
            iterator.set_state(before)  # it comes on its own, next time
            break
        batches.append(batch)
    return trees.stack(batches)
