"""What of a pipeline is on the devices: all records of a small one, the last transforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kauldron.batch_mask import BATCH_MASK
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
from kauldron.data.stream_pipeline import StreamPipeline, is_stream
from kauldron.data.transforms.fields import KeyedFields
from kauldron.data.transforms.forms import jax_form
from kauldron.data.transforms.values import OneHot
from kauldron.errors import a_type

if TYPE_CHECKING:
    from kauldron.data.iters import PyGrainIterator

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
    steps = []
    for entry in entries:
        step = jax_form(entry.transform)
        if step is None:
            raise _NotPossibleError(
                f"the records need too much memory after {entry}, which cannot run on"
                " the device"
            )
        steps.append(step)
    return steps


def _transformed(source: SourceNode, entries: Sequence[Entry]) -> Any:
    """Return all records, transformed once and for all."""
    if not entries:
        return source.all_columns()
    node = TransformNode(source, entries)
    outputs: Any = None
    for start in range(0, source.length, _ROWS_AT_ONCE):
        rows = range(start, min(start + _ROWS_AT_ONCE, source.length))
        chunk = node.fetch(rows)
        if chunk.kept is not None or chunk.records is not None:
            raise _NotPossibleError("its transforms drop records or change shapes")
        if outputs is None:
            outputs = trees.map_leaves(
                lambda leaf: np.empty((source.length, *leaf.shape[1:]), leaf.dtype),
                chunk.columns,
            )
        parts = trees.leaves_with_paths(chunk.columns)
        for (_, output), (_, part) in zip(trees.leaves_with_paths(outputs), parts):
            output[start : rows.stop] = part
    return outputs


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


# ----------------------------------------------------------------------------
# The last transforms
# ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceTransforms:
    """The last transforms of a pipeline, for a compiled function to apply to batches.

    Bytes of images travel to the device in a quarter of the time of floats. Training
    and evaluation therefore split off what makes batches larger. A loop of your own:

        last = kd.data.DeviceTransforms.of(ds)
        ds_iter = iter(ds)
        last.leave_out(ds_iter)  # from here on, batches come without them
        ... jax.jit(lambda state, batch: step(state, last.apply(batch)))

    Attributes:
      entries: The transforms, in order.
      bytes_of_batch: Of a batch of this process, before them and after them.
    """

    entries: Sequence[Entry]
    bytes_of_batch: tuple[int, int]
    _mask_names: Sequence[str] = ()

    @classmethod
    def of(cls, pipeline: Any, *, sharding: Any = None) -> DeviceTransforms | None:
        """Return the last transforms of a pipeline that are to run on the devices.

        They have a form for jax, do not change the shapes of arrays, and batches are
        smaller before them than after them. With `device_transforms="auto"`, the
        devices must be accelerators.

        Args:
          pipeline: The pipeline; an operation on one (`ds.map(...)`) has none.
          sharding: How batches are placed; by default as `device_put()` does it.

        Returns:
          The transforms, or `None`.
        """
        import jax

        wanted = getattr(pipeline, "device_transforms", False)
        if not wanted or (wanted == "auto" and jax.default_backend() == "cpu"):
            return None
        if not is_stream(pipeline) or not _shards_records_alone(sharding):
            return None
        job = pipeline._job
        is_shared = job.owner is None and job.plan.batch_size is not None
        if not is_shared or not isinstance(job.node, TransformNode):
            return None
        return _split_off(pipeline, job, job.node)

    @property
    def key(self) -> Any:
        """A key that is equal for the same transforms, valid as long as they exist."""
        return (*(id(entry.transform) for entry in self.entries), *self._mask_names)

    def leave_out(self, iterator: PyGrainIterator) -> None:
        """Let an iterator of the pipeline go on without these transforms."""
        iterator.iter.leave_out_last(len(self.entries))

    def apply(self, batch: Any) -> Any:
        """Return the batch as the pipeline would have made it; for use inside jit."""
        names = (*self._mask_names, BATCH_MASK) if isinstance(batch, Mapping) else ()
        masks = {name: batch[name] for name in names if name in batch}
        if masks:
            batch = {name: leaf for name, leaf in batch.items() if name not in masks}
        for entry in self.entries:
            try:
                batch = _jax_function(entry)(batch)
            except Exception as error:
                described = trees.describe(batch)
                error.add_note(f"In {entry}, on the device, applied to {described}.")
                raise
        if not masks:
            return batch
        return {**_with_empty_filler(batch, next(iter(masks.values()))), **masks}

    def __str__(self) -> str:
        names = [f"{e.label} {type(e.transform).__name__}" for e in self.entries]
        before, after = (f"{size / 2**20:.3g}" for size in self.bytes_of_batch)
        return f"{', '.join(names)}: {before} MiB per batch are sent instead of {after}"


def _jax_function(entry: Entry) -> Callable[[Any], Any]:
    function = jax_form(entry.transform)
    assert function is not None
    return function


def _with_empty_filler(batch: Any, is_real: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def empty(column: Any) -> Any:
        mask = is_real.reshape(-1, *[1] * (column.ndim - 1))
        return jnp.where(mask, column, jnp.zeros((), column.dtype))

    return jax.tree.map(empty, batch)


def _shards_records_alone(sharding: Any) -> bool:
    """Return whether a sharding places arrays of any shape by their first axis."""
    if sharding is None:
        return True
    spec = getattr(sharding, "spec", None)
    return spec is not None and len(spec) <= 1


def _split_off(
    pipeline: StreamPipeline, job: BatchJob, node: TransformNode
) -> DeviceTransforms | None:
    """Return as many of the last transforms as leave the smallest batches."""
    entries = _last_traceable(node)
    before = job.without_last(len(entries))
    chunk, position = pipeline._first_record(before)
    stages = [before.columns(chunk, range(position, position + 1))]
    for entry in entries:
        stages.append(_jax_function(entry)(stages[-1]))
    sizes = [_device_bytes(stage) * job.plan.local_batch_size for stage in stages]
    best = len(entries)
    for first in reversed(range(len(entries))):
        if not _is_same_on_device(entries[first], *stages[first : first + 2]):
            break
        best = first if sizes[first] < sizes[best] else best
    if best == len(entries):
        return None
    return DeviceTransforms(
        entries[best:], (sizes[best], sizes[-1]), tuple(job.mask_names)
    )


def _last_traceable(node: TransformNode) -> Sequence[Entry]:
    first = node.num_fixed
    for number in reversed(range(first, len(node.entries))):
        entry = node.entries[number]
        if entry.kind is not Kind.MAP or jax_form(entry.transform) is None:
            return node.entries[number + 1 :]
    return node.entries[first:]


def _is_same_on_device(entry: Entry, before: Any, after: Any) -> bool:
    """Return whether a transform gives the same there, whichever records follow.

    It made the columns `after` of one record out of the columns `before`.
    """
    import jax

    old, new = (dict(trees.leaves_with_paths(tree)) for tree in (before, after))
    can_be_put = all(leaf.dtype.kind not in "OUSTMm" for leaf in old.values())
    keeps = can_be_put and _keeps_shapes(entry.transform, old, new)
    if not keeps or not _is_exact_in_32_bits(entry.transform, old, new):
        return False
    try:
        traced = jax.eval_shape(_jax_function(entry), _device_specs(before))
    except Exception:  # it says that it has a form for jax, but not for these values
        return False
    return trees.form(traced) == trees.form(_device_specs(after))


def _keeps_shapes(transform: Any, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether arrays keep their shapes: then batches can be made before it."""
    renamed = getattr(transform, "rename", {})
    return all(
        leaf.ndim == 1  # a number of each record
        or getattr(new.get(renamed.get(path, path)), "shape", None) == leaf.shape
        for path, leaf in old.items()
    )


def _is_exact_in_32_bits(
    transform: Any, old: dict[str, Any], new: dict[str, Any]
) -> bool:
    """Return whether cutting 64-bit inputs to 32 bits before it changes nothing."""
    if isinstance(transform, OneHot):
        return True
    is_keyed = isinstance(transform, KeyedFields)
    written = dict(transform._key_items) if is_keyed else {}
    changes = [(leaf, new.get(written.get(path, path))) for path, leaf in old.items()]
    return all(
        result is None or leaf.dtype.itemsize < 8 or _kind(result) == _kind(leaf)
        for leaf, result in changes
    )


def _kind(array: Any) -> str:
    return "i" if array.dtype.kind == "u" else array.dtype.kind


def _device_specs(columns: Any) -> Any:
    import jax

    return trees.map_leaves(
        lambda leaf: jax.ShapeDtypeStruct(
            np.shape(leaf), jax.dtypes.canonicalize_dtype(np.result_type(leaf))
        ),
        columns,
    )


def _device_bytes(columns: Any) -> int:
    """Return the size of columns as they travel: 64 bits are 32 by then."""
    return sum(
        leaf.size * min(leaf.dtype.itemsize, 4)
        for _, leaf in trees.leaves_with_paths(columns)
    )
