"""The iterator over the batches of a stream: deterministic, resumable, closable."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kauldron.data.engine.batch_job import BatchJob, Piece
from kauldron.data.engine.executors import Executor
from kauldron.data.engine.iterator_state import IteratorState
from kauldron.data.engine.next_batches import stack_next
from kauldron.data.engine.plans import SparsePlan
from kauldron.data.engine.rebatching import Rebatcher

_log = logging.getLogger(__name__)


class BatchIterator:
    """Batches of a job, built by an executor.

    Args:
      job: What to build.
      make_executor: Starts the executor of a job, at its first unit.
      name: Of the pipeline, for messages.
      max_skipped: How many bad records may be left out.
    """

    def __init__(
        self,
        job: BatchJob,
        make_executor: Callable[[BatchJob], Executor],
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
        """The next batches stacked on a new leading axis, built in one go.

        Args:
          count: How many. Fewer come at the end of the data, and before a last batch
            that is smaller than the others.

        Raises:
          StopIteration: There is none left.
        """
        self._check_open()
        units = self._full_units(count)
        if not units:
            return stack_next(self, count)
        executor = self._running_executor()
        if executor.builds_ahead:
            return stack_next(self, count)
        batches = self._job.build_stacked(units)
        if self._job.skipped is not None:
            self._note_skipped(self._job.skipped.drain())
        if batches is None:  # records are missing
            return stack_next(self, count)
        executor.skip(len(units))
        self._units += len(units)
        self._position = self._job.plan.position_after(self._units)
        return batches

    def next_positions(self, count: int) -> np.ndarray:
        """Stream positions of the next full batches, `int64[count, batch]`; skips them.

        For data that lives on the device: only these numbers travel. Fewer batches come
        at the end of the data.

        Raises:
          StopIteration: There is none left.
        """
        self._check_open()
        units = self._full_units(count)
        if not units:
            raise StopIteration
        plan = self._job.plan
        firsts = np.array([plan.positions(unit).start for unit in units])
        positions = firsts[:, None] + np.arange(plan.local_batch_size)
        self._go_to(plan.position_after(units.stop))
        return positions

    def get_state(self) -> dict[str, Any]:
        """Where the consumer is; JSON. What was prepared ahead does not count."""
        return self._state().to_json()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where another iterator was, also one of another number of processes."""
        self._check_open()
        self._go_to(self._state().position_from(state, name=self._name))

    def close(self) -> None:
        """End all threads and processes of the iterator."""
        self._stop_executor()
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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
        plan = self._job.plan
        self._rebatcher = None
        if isinstance(plan, SparsePlan):
            cut_every = plan.length if self._job.cut_epochs else None
            self._rebatcher = Rebatcher(self._job, cut_every)

    def _state(self) -> IteratorState:
        plan, owner = self._job.plan, self._job.owner
        return IteratorState(
            position=self._position,
            process_count=(owner or plan.share).count,
            is_local=owner is not None or isinstance(plan, SparsePlan),
            batch_size=plan.batch_size,
            num_records=plan.length,
            total=plan.total,
        )

    def _full_units(self, count: int) -> range:
        """The next units that are batches of full size."""
        plan = self._job.plan
        if isinstance(plan, SparsePlan) or not plan.batch_size:
            return range(0)
        stop = self._units + count
        if plan.num_units is not None:
            stop = min(stop, plan.num_units)
        if stop > self._units and not plan.is_full(stop - 1):
            stop -= 1
        return range(self._units, stop)

    # ------------------------------------------------------------------------
    # Units
    # ------------------------------------------------------------------------

    def _running_executor(self) -> Executor:
        if self._executor is None:
            self._executor = self._make_executor(self._job)
        return self._executor

    def _next_piece(self) -> Piece:
        if self._has_ended:
            raise StopIteration
        executor = self._running_executor()
        try:
            piece = executor.get()
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
            raise ValueError(f"The iterator over {self._name} is closed.")

    def _stop_executor(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()

    # ------------------------------------------------------------------------
    # Streams in which records are missing
    # ------------------------------------------------------------------------

    def _expect_holes(self, survivors: np.ndarray) -> None:
        """A transform dropped a record without being a filter: go on as with one."""
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
