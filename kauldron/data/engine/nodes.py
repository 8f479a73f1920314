"""Streams: what is at position k, for any number of positions at once.

Streams form a tree. A leaf reads a source; the nodes above reorder positions or apply
transforms. Positions run on over epochs: position `k` of a stream of `n` records is
record `k % n` of epoch `k // n`.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kauldron.data.engine import keys, trees
from kauldron.data.engine.batch_memory import RowStacker
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.shuffles import EpochOrder
from kauldron.data.transforms.forms import batch_form
from kauldron.data.transforms.pillow_images import decoded_record

# ----------------------------------------------------------------------------
# Records on their way to a batch
# ----------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Chunk:
    """Records in one of two forms: as columns, or as a list.

    Attributes:
      size: Number of records.
      columns: Tree of arrays with leading axis `size`, if `records` is `None`.
      records: The records one by one.
      kept: Which of the requested positions are here, ascending; `None`: all of them.
      is_fresh: Whether nobody else holds the arrays and containers.
    """

    size: int
    columns: Any = None
    records: list[Any] | None = None
    kept: np.ndarray | None = None
    is_fresh: bool = False

    def as_records(self) -> list[Any]:
        """Return the records one by one, whatever the form."""
        if self.records is not None:
            return self.records
        return trees.unstack(self.columns, self.size)

    def own_records(self) -> list[Any]:
        """Return the records one by one, free to be changed by the caller."""
        records = self.as_records()
        return records if self.is_fresh else [trees.copy_record(r) for r in records]

    def with_records(self, records: list[Any], *, is_fresh: bool) -> Chunk:
        """Return the same positions with new records; `None` among them are dropped."""
        if not any(record is None for record in records):
            return Chunk(len(records), None, records, self.kept, is_fresh)
        alive = np.array([record is not None for record in records])
        records = [record for record in records if record is not None]
        return Chunk(len(records), None, records, self._rows(alive), is_fresh)

    def select(self, alive: np.ndarray) -> Chunk:
        """Return the records where `alive` is true."""
        if alive.all():
            return self
        size, kept = int(alive.sum()), self._rows(alive)
        if self.records is not None:
            records = [r for r, is_alive in zip(self.records, alive) if is_alive]
            return Chunk(size, None, records, kept, self.is_fresh)
        columns = trees.take_rows(self.columns, alive)
        return Chunk(size, columns, None, kept, is_fresh=True)

    def of_kept(self, positions: Positions) -> np.ndarray:
        """Return those of the requested positions that have a record here."""
        positions = as_array(positions)
        return positions if self.kept is None else positions[self.kept]

    def _rows(self, alive: np.ndarray) -> np.ndarray:
        return np.nonzero(alive)[0] if self.kept is None else self.kept[alive]


Positions = range | np.ndarray


def as_array(positions: Positions) -> np.ndarray:
    """Return positions as int64 numbers."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step)
    return positions


class SkippedRecords:
    """Collects what went wrong with records; any thread may add."""

    def __init__(self):
        self._messages: collections.deque[str] = collections.deque()

    def add(self, where: str, error: BaseException) -> None:
        """Note a record that failed."""
        self._messages.append(f"{where} {type(error).__name__}: {error}")

    def drain(self) -> list[str]:
        """Return the messages that came in since the last call."""
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages


# ----------------------------------------------------------------------------
# Streams, and streams in another order
# ----------------------------------------------------------------------------


class StreamNode(abc.ABC):
    """One stream of records.

    Attributes:
      length: Number of records of one epoch.
      is_sparse: Whether some positions may hold no record (filters).
      leaf_seeds: For each source below, nearest first: its 32 random bits and how many
        steps down it is. Random transforms derive their seed from them.
    """

    length: int
    is_sparse: bool = False
    leaf_seeds: tuple[tuple[int, int], ...] = ()

    @abc.abstractmethod
    def fetch(self, positions: Positions) -> Chunk:
        """Return the records at these positions. May be called by many threads."""

    def fetch_by_stage(self, positions: Positions) -> Iterator[tuple[str, Chunk]]:
        """As `fetch`, but yield the name and the result of each stage on the way."""
        yield "source", self.fetch(positions)

    @abc.abstractmethod
    def locate(self, position: int) -> str:
        """Return which record of which source stands at a position, in words."""

    def filter_names(self) -> list[str]:
        """Return the entries that may drop records, for messages."""
        return []


def deeper(leaf_seeds: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the leaf seeds seen from one step further up, nearest first."""
    return tuple(sorted(((b, d + 1) for b, d in leaf_seeds), key=lambda leaf: leaf[1]))


class ReorderNode(StreamNode):
    """The records of the parent in another order, or some of them."""

    def __init__(self, parent: StreamNode):
        self.parent = parent
        self.length = parent.length
        self.is_sparse = parent.is_sparse
        self.leaf_seeds = deeper(parent.leaf_seeds)

    @abc.abstractmethod
    def parent_positions(self, positions: Positions) -> Positions:
        """Return where in the parent these positions are found."""

    def fetch(self, positions: Positions) -> Chunk:
        return self.parent.fetch(self.parent_positions(positions))

    def fetch_by_stage(self, positions: Positions) -> Iterator[tuple[str, Chunk]]:
        return self.parent.fetch_by_stage(self.parent_positions(positions))

    def locate(self, position: int) -> str:
        parent_positions = self.parent_positions(range(position, position + 1))
        return self.parent.locate(int(parent_positions[0]))

    def filter_names(self) -> list[str]:
        return self.parent.filter_names()


class ShuffleNode(ReorderNode):
    """Each epoch of the parent in an order of its own."""

    def __init__(self, parent: StreamNode, seed: int):
        super().__init__(parent)
        self._order = EpochOrder(self.length, seed)

    def parent_positions(self, positions: Positions) -> Positions:
        if isinstance(positions, range) and positions:
            return self._order.span(positions)
        epochs, indices = np.divmod(as_array(positions), self.length)
        return self._order(epochs, indices) + epochs * self.length


class SliceNode(ReorderNode):
    """The records that `range(parent.length)[slice]` names, in each epoch."""

    def __init__(self, parent: StreamNode, selection: slice):
        super().__init__(parent)
        self._selected = range(parent.length)[selection]
        self.length = len(self._selected)

    def parent_positions(self, positions: Positions) -> Positions:
        epochs, indices = np.divmod(as_array(positions), self.length)
        selected = self._selected.start + indices * self._selected.step
        return selected + epochs * self.parent.length


# ----------------------------------------------------------------------------
# Sources
# ----------------------------------------------------------------------------


@runtime_checkable
class RandomAccessSource(Protocol):
    """A source that a pipeline can read from.

    Two optional methods are used where they exist, the first one by preference:
    `get_batch(indices: np.ndarray)` gives a tree of arrays with leading dimension
    `len(indices)`; `__getitems__(indices: list[int])` gives a list of records.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class SourceNode(StreamNode):
    """Position `k` is record `selection[k % len(selection)]` of the source."""

    def __init__(
        self,
        source: RandomAccessSource,
        *,
        name: str,
        selection: range,
        seed_bits: int,
        seed_depth: int,
        skipped: SkippedRecords | None = None,
        as_records: bool = False,
    ):
        self.source = source
        self.name = name
        self.length = len(selection)
        self.leaf_seeds = ((seed_bits, seed_depth),)
        self._selection = selection
        self._skipped = skipped
        self._as_records = as_records
        self._is_fresh = getattr(source, "gives_fresh_records", False)
        self._read_encoded: Callable[[int], Any] | None = None
        self._read = self._read_each
        if is_columnar(source):
            self._read = self._read_columns
        elif _gives_many(source):
            self._read = self._read_many

    def fetch(self, positions: Positions) -> Chunk:
        indices = self._selected(positions)
        try:
            chunk = self._read(indices)
        except Exception as error:
            return self._read_one_by_one(indices, error)
        if self._as_records and chunk.records is None:
            return chunk.with_records(chunk.as_records(), is_fresh=chunk.is_fresh)
        return chunk

    def _selected(self, positions: Positions) -> np.ndarray:
        """Return the numbers of the records in the source."""
        indices = as_array(positions) % self.length
        start, step = self._selection.start, self._selection.step
        return indices if (start, step) == (0, 1) else start + step * indices

    def all_columns(self) -> Any:
        """Return all selected records of a columnar source, uncopied if possible."""
        if self._selection == range(len(self.source)):
            return self.source.columns  # pyright: ignore[reportAttributeAccessIssue]
        return self.fetch(range(self.length)).columns

    def leave_encoded(self) -> bool:
        """Give images that are not decoded yet, if the source has such; say if so."""
        read = getattr(self.source, "encoded_record", None)
        if read is None or self._read != self._read_each:
            return False
        self._read_encoded = read
        self._is_fresh = False  # what is cut out of a file cannot be written to
        return True

    def locate(self, position: int) -> str:
        index = self._selection[position % self.length]
        return f"record {index} of {self.name}"

    def _read_columns(self, indices: np.ndarray) -> Chunk:
        columns = self.source.get_batch(indices)  # pyright: ignore[reportAttributeAccessIssue]
        size = len(indices)
        if self._is_fresh:
            return Chunk(size, columns, None, None, is_fresh=True)
        columns = trees.map_leaves(_read_only_if_borrowed, columns)
        is_fresh = True
        for path, column in trees.leaves_with_paths(columns):
            is_fresh = is_fresh and column.flags.writeable
            if column.shape[:1] != (size,):
                raise ValueError(
                    f"get_batch of {self.name} was asked for {size} records, but the"
                    f" field {path!r} has shape {column.shape}; its first dimension must"
                    f" be {size}."
                )
        return Chunk(size, columns, None, None, is_fresh)

    def _read_many(self, indices: np.ndarray) -> Chunk:
        records = list(self.source.__getitems__(indices.tolist()))  # pyright: ignore[reportAttributeAccessIssue]
        if len(records) != len(indices):
            raise ValueError(
                f"__getitems__ of {self.name} was asked for {len(indices)} records and"
                f" gave {len(records)}."
            )
        return Chunk(len(records)).with_records(records, is_fresh=self._is_fresh)

    def _read_each(self, indices: np.ndarray) -> Chunk:
        source = self.source
        if self._read_encoded is not None:
            records = [self._read_encoded(index) for index in indices.tolist()]
        else:
            records = [source[index] for index in indices.tolist()]
        return Chunk(len(records)).with_records(records, is_fresh=self._is_fresh)

    def _read_one_by_one(self, indices: np.ndarray, error: Exception) -> Chunk:
        """Find out which record fails; leave it out if that is allowed."""
        records: list[Any] = []
        has_failed = False
        for row, index in enumerate(indices.tolist()):
            try:
                one = self._read(indices[row : row + 1])
            except Exception as record_error:
                where = f"While reading record {index} of {self.name}."
                if self._skipped is None:
                    record_error.add_note(where)
                    raise
                self._skipped.add(where, record_error)
                has_failed = True
                records.append(None)
            else:
                records.extend(one.as_records() or [None])
        if not has_failed:
            shown = f"{indices[:8].tolist()}{'...' if len(indices) > 8 else ''}"
            error.add_note(
                f"While reading the records {shown} of {self.name} together; read one"
                " by one, none of them fails."
            )
            raise error
        return Chunk(len(records)).with_records(records, is_fresh=self._is_fresh)


def is_columnar(source: Any) -> bool:
    """Return whether the source gives whole batches as arrays."""
    return callable(getattr(source, "get_batch", None))


def _gives_many(source: Any) -> bool:
    """Return whether the source has a working `__getitems__`.

    Python looks up such methods on the class. `tfds.testing.mock_data()` puts one that
    expects `self` on the object that its sources read from, where it cannot be called.
    """
    parts = (source, getattr(source, "data_source", None))
    on_object = any("__getitems__" in getattr(p, "__dict__", ()) for p in parts)
    return callable(getattr(source, "__getitems__", None)) and not on_object


def _read_only_if_borrowed(column: Any) -> np.ndarray:
    """Arrays that may be views of the source's own memory cannot be written to."""
    column = np.asarray(column)
    if column.flags.owndata or not column.flags.writeable:
        return column
    column = column.view()
    column.flags.writeable = False
    return column


# ----------------------------------------------------------------------------
# Transforms
# ----------------------------------------------------------------------------


class TransformNode(StreamNode):
    """The parent's records after some transforms.

    Columns stay columns as long as transforms have a batch form; an entry without one
    gets the records one by one, and only that entry pays for it.
    """

    def __init__(
        self,
        parent: StreamNode,
        entries: Sequence[Entry],
        *,
        skipped: SkippedRecords | None = None,
    ):
        self.parent = parent
        self.length = parent.length
        self.is_sparse = parent.is_sparse or any(e.may_drop for e in entries)
        self.entries = tuple(entries)
        self._skipped = skipped
        self._steps: list[_Step] = []
        leaf_seeds = parent.leaf_seeds
        for entry in entries:
            leaf_seeds = deeper(leaf_seeds)
            if entry.kind is not Kind.SLICE:  # done at the source, but counted
                self._steps.append(_Step(entry, leaf_seeds))
        self.leaf_seeds = leaf_seeds
        self._num_encoded = _count_while(self._steps, lambda step: step.takes_encoded)
        if self._num_encoded and not _leave_encoded(parent):
            self._num_encoded = 0
        if self._num_encoded:
            self._steps[self._num_encoded - 1].decode_result()
        self._stack_before = len(self._steps)
        self._num_by_record = 0

    @property
    def num_fixed(self) -> int:
        """How many of the first entries must stay where image files come in."""
        if not self._num_encoded:
            return 0
        return _count_while(self.entries, lambda entry: entry.kind is Kind.SLICE) + 1

    def stack_early(self) -> None:
        """Turn records into columns as soon as nothing needs them one by one.

        For the last node before the batch: then nobody sees the difference, except in
        time.
        """
        rest = self._steps[self._num_encoded :]
        num_late = _count_while(rest[::-1], lambda step: step.on_columns)
        self._stack_before = len(self._steps) - num_late
        if self._num_encoded:
            count = self._num_encoded
            count += _count_while(rest, lambda step: step.goes_one_by_one)
            self._num_by_record = count if count >= self._stack_before else 0

    def without_last(self, count: int) -> TransformNode:
        """Return the same stream before its last transforms."""
        entries = self.entries[: len(self.entries) - count]
        node = TransformNode(self.parent, entries, skipped=self._skipped)
        node.stack_early()
        return node

    def fetch(self, positions: Positions) -> Chunk:
        chunk = self.parent.fetch(positions)
        first = 0
        if self._num_by_record and chunk.size and chunk.records is not None:
            chunk, first = self._run_by_record(chunk, positions), self._num_by_record
        for _, result in self._run(chunk, positions, first):
            chunk = result
        return chunk

    def fetch_by_stage(self, positions: Positions) -> Iterator[tuple[str, Chunk]]:
        chunk = Chunk(0)
        for name, chunk in self.parent.fetch_by_stage(positions):
            yield name, chunk
        yield from self._run(chunk, positions)

    def _run_by_record(self, chunk: Chunk, positions: Positions) -> Chunk:
        """Apply the first steps, all of them to a record before the next record.

        Little memory is needed on the way from a file to its place in the batch.
        """
        rows = chunk.of_kept(positions)
        steps = self._steps[: self._num_by_record]
        chain = [self._record_function(step, rows) for step in steps]
        stacker = RowStacker(chunk.size)
        for row, record in enumerate(chunk.as_records()):
            for apply in chain:
                record = apply(row, record)
                if record is None:
                    break
            stacker.add(record)
        columns = stacker.columns()
        if columns is None:
            return chunk.with_records(stacker.records, is_fresh=False)
        return Chunk(chunk.size, columns, None, chunk.kept, is_fresh=True)

    def _run(
        self, chunk: Chunk, positions: Positions, first: int = 0
    ) -> Iterator[tuple[str, Chunk]]:
        """Yield the records after each step from the first on, with its name."""
        for number, step in enumerate(self._steps[first:], first):
            if not chunk.size:
                return
            is_late = number >= self._stack_before
            if is_late and not (step.goes_one_by_one and _is_large(chunk)):
                chunk = _try_to_stack(chunk)
            chunk = self._apply(step, chunk, positions)
            yield step.name, chunk

    def locate(self, position: int) -> str:
        return self.parent.locate(position)

    def filter_names(self) -> list[str]:
        mine = [str(entry) for entry in self.entries if entry.may_drop]
        return self.parent.filter_names() + mine

    def _apply(self, step: _Step, chunk: Chunk, positions: Positions) -> Chunk:
        if chunk.records is None and step.on_columns:
            try:
                return step.apply_to_columns(chunk, positions)
            except Exception as error:
                return self._find_bad_record(step, chunk, positions, error)
        records = chunk.as_records() if step.is_ours else chunk.own_records()
        is_fresh = chunk.is_fresh or not step.is_ours
        apply = self._record_function(step, chunk.of_kept(positions))
        results = [apply(row, record) for row, record in enumerate(records)]
        changed = chunk.with_records(results, is_fresh=is_fresh)
        return _try_to_stack(changed) if chunk.records is None else changed

    def _find_bad_record(
        self, step: _Step, chunk: Chunk, positions: Positions, error: Exception
    ) -> Chunk:
        """Find out at which record a batch form fails; leave it out if allowed."""
        failed: list[int] = []
        apply = self._record_function(step, chunk.of_kept(positions), failed)
        results = [apply(row, r) for row, r in enumerate(chunk.own_records())]
        if not failed and not _has_objects(chunk.columns):
            error.add_note(
                f"In the batch form of {step.entry}; record by record it does not fail."
                f" The batch: {trees.describe(chunk.columns)}."
            )
            raise error
        return _try_to_stack(chunk.with_records(results, is_fresh=True))

    def _record_function(
        self, step: _Step, rows: np.ndarray, failed: list[int] | None = None
    ) -> Callable[[int, Any], Any]:
        """Return the function of (row, record) that gives the new record.

        It gives `None` for a record that is dropped, or bad and may be left out. Rows of
        bad ones are added to `failed`.
        """
        function = step.record_function(rows)

        def apply(row: int, record: Any) -> Any:
            try:
                return function(row, record)
            except Exception as error:
                place = self.locate(int(rows[row]))
                where = (
                    f"In {step.entry}, applied to {place}: {trees.describe(record)}."
                )
                if self._skipped is None:
                    error.add_note(where)
                    raise
                self._skipped.add(where, error)
                if failed is not None:
                    failed.append(row)
                return None

        return apply


class _Step:
    """One entry, with everything resolved that does not depend on the record."""

    def __init__(self, entry: Entry, leaf_seeds: tuple[tuple[int, int], ...]):
        self.entry = entry
        self.is_ours = entry.is_ours
        self.name = f"{entry.label} {type(entry.transform).__name__}"
        takes_encoded = getattr(entry.transform, "takes_encoded_images", False)
        self.takes_encoded = self.is_ours and takes_encoded
        self._method: Callable[..., Any] = getattr(entry.transform, entry.kind.value)
        has_batch_form = entry.kind in (Kind.MAP, Kind.RANDOM_MAP, Kind.FILTER)
        self._batch_method = batch_form(entry.transform) if has_batch_form else None
        self.on_columns = self._batch_method is not None
        # Random transforms of columns go from row to row all the same.
        self.goes_one_by_one = entry.kind is Kind.RANDOM_MAP and self.is_ours
        self._seed = keys.op_seed(leaf_seeds)

    def decode_result(self) -> None:
        """Decode the images that it leaves as files: the next step needs pixels."""
        method = self._method
        self._method = lambda *args: decoded_record(method(*args))

    def apply_to_columns(self, chunk: Chunk, positions: Positions) -> Chunk:
        assert self._batch_method is not None
        kind = self.entry.kind
        if kind is Kind.MAP:
            columns = self._batch_method(chunk.columns)
        elif kind is Kind.RANDOM_MAP:
            rngs = keys.RecordRngs(self._seed, chunk.of_kept(positions))
            columns = self._batch_method(chunk.columns, rngs)
        else:
            alive = np.asarray(self._batch_method(chunk.columns), bool)
            return chunk.select(alive.reshape(chunk.size))
        if not self.is_ours:
            _check_size(columns, chunk.size)
        return Chunk(chunk.size, columns, None, chunk.kept, chunk.is_fresh)

    def record_function(self, rows: np.ndarray) -> Callable[[int, Any], Any]:
        """Return the function of (row, record) that gives the new record."""
        method = self._method
        if self.entry.kind is Kind.RANDOM_MAP:
            rngs = keys.RecordRngs(self._seed, rows)
            return lambda row, record: method(record, rngs[row])
        if self.entry.kind is Kind.MAP_WITH_INDEX:
            return lambda row, record: method(int(rows[row]), record)
        if self.entry.kind is Kind.FILTER:
            return lambda row, record: record if method(record) else None
        return lambda row, record: method(record)


def _count_while(items: Sequence[Any], condition: Callable[[Any], bool]) -> int:
    """Return how many items come before the first that does not fulfil it."""
    return sum(1 for _ in itertools.takewhile(condition, items))


def _leave_encoded(node: StreamNode) -> bool:
    while isinstance(node, ReorderNode):
        node = node.parent
    return isinstance(node, SourceNode) and node.leave_encoded()


def _check_size(columns: Any, size: int) -> None:
    if columns is None:
        raise ValueError("It returned None instead of a batch: is a `return` missing?")
    for path, column in trees.leaves_with_paths(columns):
        if np.shape(column)[:1] != (size,):
            raise ValueError(
                f"It got {size} records, but returned the field {path!r} with shape"
                f" {np.shape(column)}; the first dimension must stay."
            )


_LARGE_RECORD_BYTES = 2**15


def _has_objects(columns: Any) -> bool:
    """Return whether a field is an array of objects, such as arrays of any shape."""
    leaves = trees.leaves_with_paths(columns)
    return any(isinstance(x, np.ndarray) and x.dtype.hasobject for _, x in leaves)


def _is_large(chunk: Chunk) -> bool:
    """Return whether records are so large that a copy costs more than a call."""
    if chunk.records is None or not isinstance(chunk.records[0], dict):
        return False
    fields = chunk.records[0].values()
    return sum(getattr(f, "nbytes", 0) for f in fields) >= _LARGE_RECORD_BYTES


def _try_to_stack(chunk: Chunk) -> Chunk:
    """Return columns if the records can be stacked, else the same records."""
    if chunk.records is None or not chunk.size:
        return chunk
    try:
        columns = trees.stack(chunk.records)
    except trees.RecordMismatchError:
        return chunk
    return Chunk(chunk.size, columns, None, chunk.kept, is_fresh=True)
