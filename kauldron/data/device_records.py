"""All records of a small data set on the device; only their numbers travel per step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kauldron.data.engine import trees
from kauldron.data.engine.batches import BatchJob
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.nodes import (
    ReorderNode,
    SourceNode,
    StreamNode,
    TransformNode,
    as_array,
)
from kauldron.data.transforms.forms import jax_form
from kauldron.errors import a_type

if TYPE_CHECKING:
    from kauldron.data.stream_pipeline import StreamPipeline

_SHARE_OF_MEMORY = 0.1
_ROWS_AT_ONCE = 4096
_POSITIONS_AT_ONCE = 16384  # small arrays stay in the cache and need no new pages


@dataclasses.dataclass(frozen=True)
class DeviceRecords:
    """The records of a pipeline on the devices, one row each.

    A loop takes stream positions from the iterator, turns them into rows, and gathers
    inside the compiled step:

        records = kd.data.DeviceRecords.of(ds)
        rows = records.rows(ds_iter.next_positions(k))       # int32[k, batch]
        ... jax.lax.scan(lambda s, r: step(s, records.gather(columns, r)), state, rows)

    with `columns = records.columns` passed to the compiled function as an argument. The
    batches are the same, in the same order, as those of the iterator.

    Attributes:
      columns: Tree of arrays, replicated over all devices.
    """

    columns: Any
    _reorderings: Sequence[ReorderNode]
    _num_rows: int
    _steps: Sequence[Callable[[Any], Any]] = ()
    _mask_names: Sequence[str] = ()

    @classmethod
    def of(cls, pipeline: Any) -> DeviceRecords | None:
        """Put the records of a pipeline on the devices, if that is wanted and possible.

        It is possible for arrays in memory, batched, in a single process, whose
        transforms do the same to a record each time. With `device_resident="auto"` the
        transforms must be ours (or declare `traceable = True`), and the records must
        fit into a tenth of the free memory of an accelerator.

        Returns:
          The records, or `None`.

        Raises:
          ValueError: `device_resident=True`, and it is not possible; says why.
        """
        wanted = getattr(pipeline, "device_resident", False)
        if not wanted:
            return None
        try:
            return _put(pipeline, may_be_large=wanted is True)
        except _NotPossibleError as error:
            if wanted == "auto":
                return None
            raise _refusal(pipeline, error) from None

    @classmethod
    def check(cls, pipeline: Any) -> None:
        """Raise what `of` would, as far as can be told without moving the records."""
        if getattr(pipeline, "device_resident", False) is not True:
            return
        try:
            _possible_parts(pipeline, may_be_large=True)
        except _NotPossibleError as error:
            raise _refusal(pipeline, error) from None

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Rows of the records at stream positions, `int32` of the same shape."""
        flat = _as_range(positions.ravel())
        rows = np.empty(len(flat), np.int32)
        for start in range(0, len(flat), _POSITIONS_AT_ONCE):
            part: Any = flat[start : start + _POSITIONS_AT_ONCE]
            out = rows[start : start + _POSITIONS_AT_ONCE]
            for node in self._reorderings:
                part = node.parent_positions(part)
            np.remainder(as_array(part), self._num_rows, out=out, casting="unsafe")
        return rows.reshape(positions.shape)

    def in_order_of(self, pipeline: Any) -> DeviceRecords:
        """Return the same records in the order of a pipeline that differs in its seed."""
        _, _, reorderings = _parts(pipeline._job)
        return dataclasses.replace(self, _reorderings=reorderings)

    def gather(self, columns: Any, rows: Any) -> Any:
        """Return the batch of some rows; for use inside jit."""
        import jax
        import jax.numpy as jnp

        batch = jax.tree.map(
            lambda column: column.at[rows].get(mode="promise_in_bounds"), columns
        )
        for step in self._steps:
            batch = step(batch)
        if self._mask_names:
            all_real = jnp.ones(rows.shape, bool)
            batch = {**batch, **dict.fromkeys(self._mask_names, all_real)}
        return batch


def _as_range(positions: np.ndarray) -> Any:
    """Return consecutive positions as a range, which is quicker to reorder."""
    start = int(positions[0]) if len(positions) else 0
    stop = start + len(positions)
    is_run = np.array_equal(positions, np.arange(start, stop))
    return range(start, stop) if is_run else positions


class _NotPossibleError(Exception):
    pass


def _refusal(pipeline: Any, reason: _NotPossibleError) -> ValueError:
    return ValueError(f"{type(pipeline).__name__}(device_resident=True): {reason}.")


def _put(pipeline: StreamPipeline, *, may_be_large: bool) -> DeviceRecords:
    job = pipeline._job
    source, entries, reorderings = _possible_parts(pipeline, may_be_large=may_be_large)
    room = None if may_be_large else _free_memory() * _SHARE_OF_MEMORY
    per_record = _num_bytes(pipeline.element_spec) / job.plan.local_batch_size
    steps: list[Callable[[Any], Any]] = []
    if room is None or per_record * source.length <= room:
        columns = _transformed(source, entries)
    else:
        columns, steps = source.all_columns(), _traced(entries)
        if _num_bytes(columns) > room:
            raise _NotPossibleError("the records need too much memory")
    spec = pipeline.element_spec
    masks = [name for name in job.mask_names if isinstance(spec, dict)]
    return DeviceRecords(
        _on_all_devices(columns), reorderings, source.length, steps, masks
    )


def _possible_parts(
    pipeline: StreamPipeline, *, may_be_large: bool
) -> tuple[SourceNode, list[Entry], list[ReorderNode]]:
    """Return the parts of a pipeline's stream, if it can live on the devices."""
    source, entries, reorderings = _parts(pipeline._job)
    for entry in entries:
        _check_entry(entry, may_be_users=may_be_large)
    _check_dtypes(pipeline.element_spec)
    return source, entries, reorderings


def _parts(job: BatchJob) -> tuple[SourceNode, list[Entry], list[ReorderNode]]:
    """Return the parts of a stream, if it is one source, reordered at most."""
    if job.plan.share.count > 1 or job.owner is not None:
        raise _NotPossibleError(
            "the data is shared by several processes, or is grain's"
        )
    if job.plan.batch_size is None:
        raise _NotPossibleError("it has no batches")
    entries: list[Entry] = []
    reorderings: list[ReorderNode] = []
    node: StreamNode = job.node
    while not isinstance(node, SourceNode):
        if isinstance(node, TransformNode):
            entries = [*node.entries, *entries]
        elif isinstance(node, ReorderNode):
            reorderings.append(node)
        else:
            raise _NotPossibleError(f"{a_type(node)} is in the way")
        node = node.parent
    if not getattr(node.source, "is_in_memory", False):
        raise _NotPossibleError("the records are not arrays in memory")
    return node, [e for e in entries if e.kind is not Kind.SLICE], reorderings


def _check_entry(entry: Entry, *, may_be_users: bool) -> None:
    if entry.kind not in (Kind.MAP, Kind.CALL):
        raise _NotPossibleError(f"{entry} does not do the same to a record each time")
    if not (may_be_users or entry.is_ours or jax_form(entry.transform) is not None):
        raise _NotPossibleError(f"{entry} may not do the same to a record each time")


def _check_dtypes(spec: Any) -> None:
    for path, leaf in trees.leaves_with_paths(spec):
        if leaf.dtype == np.dtype(object):
            raise _NotPossibleError(f"the field {path!r} is not an array of numbers")


def _traced(entries: Sequence[Entry]) -> list[Callable[[Any], Any]]:
    steps = [jax_form(entry.transform) for entry in entries]
    for entry, step in zip(entries, steps):
        if step is None:
            raise _NotPossibleError(
                f"the records need too much memory after {entry}, which cannot run on"
                " the device"
            )
    return [step for step in steps if step is not None]


def _transformed(source: SourceNode, entries: Sequence[Entry]) -> Any:
    """Return all records, transformed once and for all."""
    if not entries:
        return source.all_columns()
    node = TransformNode(source, entries)
    outputs: list[np.ndarray] = []
    first: Any = None
    for start in range(0, source.length, _ROWS_AT_ONCE):
        rows = range(start, min(start + _ROWS_AT_ONCE, source.length))
        chunk = node.fetch(rows)
        if chunk.kept is not None or chunk.records is not None:
            raise _NotPossibleError("its transforms drop records or change shapes")
        leaves = [leaf for _, leaf in trees.leaves_with_paths(chunk.columns)]
        if first is None:
            first = chunk.columns
            outputs = [
                np.empty((source.length, *leaf.shape[1:]), leaf.dtype)
                for leaf in leaves
            ]
        for output, leaf in zip(outputs, leaves):
            output[rows.start : rows.stop] = leaf
    filled = iter(outputs)
    return trees.map_leaves(lambda _: next(filled), first)


def _num_bytes(tree: Any) -> int:
    return sum(
        int(np.prod(leaf.shape)) * leaf.dtype.itemsize
        for _, leaf in trees.leaves_with_paths(tree)
    )


def _free_memory() -> float:
    import jax

    free = []
    for device in jax.local_devices():
        stats = device.memory_stats() if device.platform != "cpu" else None
        if not stats or "bytes_limit" not in stats:
            raise _NotPossibleError("there is no accelerator with memory of its own")
        free.append(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return min(free)


def _on_all_devices(columns: Any) -> Any:
    import jax

    from kauldron.sharding import device_mesh
    from kauldron.sharding.tree import device_put

    with jax.transfer_guard("allow"):
        return device_put(columns, device_mesh.REPLICATED)
