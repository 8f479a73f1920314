"""Pipelines of what is in memory: a tree of arrays, or zeros of a spec."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kauldron.data.engine import keys, streams, trees
from kauldron.data.engine.batches import (
    BatchJob,
    BatchSize,
    DensePlan,
    DropRemainder,
    Share,
    SparsePlan,
)
from kauldron.data.engine.entries import Entry, parse_entries
from kauldron.data.engine.nodes import (
    Positions,
    ReorderNode,
    SourceNode,
    StreamNode,
    as_array,
)
from kauldron.data.pipeline import (
    Pipeline,
    check_choice,
    check_epochs,
    frozen_transforms,
)
from kauldron.data.stream_pipeline import StreamPipeline
from kauldron.errors import a_type


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InMemoryPipeline(StreamPipeline):
    """Batches of arrays that are in memory; each epoch is cut into batches on its own.

    Attributes:
      loader: Function without arguments that gives a tree of arrays which agree in
        their first dimension. Called once, when data is first needed.
      shuffle: Whether each epoch has an order of its own.
      num_epochs: `None` for endless data.
      drop_remainder: What happens to the records at the end of each epoch that fill no
        batch: `True` or "drop", `False` or "keep", "pad".
      transforms: Applied to the records; see `kd.data.py.PyGrainPipeline`.
      device_resident: Whether training may keep the records on the device. "auto": if
        they are small and the transforms allow it.

    Example:
      >>> from kauldron import kd
      >>> ds = kd.data.InMemoryPipeline(
      ...     loader=lambda: {"x": np.arange(5)}, num_epochs=2, batch_size=2
      ... )
      >>> [batch["x"].tolist() for batch in ds]
      [[0, 1], [2, 3], [0, 1], [2, 3]]
    """

    loader: Callable[[], Any]
    shuffle: bool = False
    num_epochs: int | None = None
    drop_remainder: bool | str | DropRemainder = True
    transforms: Sequence[Any] | Mapping[str, Any] = ()
    device_resident: bool | Literal["auto"] = "auto"

    __root_cfg_fields_to_recurse__ = ("transforms",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "drop_remainder", DropRemainder(self.drop_remainder))
        object.__setattr__(self, "transforms", frozen_transforms(self.transforms))
        check_epochs(self)
        check_choice(self, "device_resident")
        parse_entries(self.transforms)

    @functools.cached_property
    def examples(self) -> Any:
        """The whole data set."""
        return self._source.columns

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return len(self._source)

    @functools.cached_property
    def _source(self) -> ColumnSource:
        return ColumnSource(self.loader(), name=f"{self._name} examples")

    def iter(self) -> Iterator[Any]:
        """Yield the batches."""
        yield from self

    @property
    def sampler(self) -> BatchSampler:
        """The indices of the records of each batch of this process."""
        return BatchSampler(
            batch_size=self.batch_size or 1,
            num_records=self.num_examples,
            num_epochs=self.num_epochs,
            seed=self.effective_seed,
            shuffle=self.shuffle,
            drop_remainder=self.drop_remainder is DropRemainder.DROP,
        )

    def _all_entries(self) -> Iterator[Entry]:
        yield from parse_entries(self.transforms)

    def _make_job(self, share: Share) -> BatchJob:
        is_batched = bool(self.batch_size)
        entries = parse_entries(self.transforms)
        node: StreamNode = SourceNode(
            self._source,
            name=self._name,
            selection=streams.selection(self.num_examples, entries),
            seed_bits=keys.bits(keys.root_key(self.effective_seed)),
            seed_depth=1,  # as in `kd.data.py`, where sharding is a step
            as_records=not is_batched,
        )
        if self.shuffle and node.length:
            node = PhiloxShuffleNode(node, self.effective_seed)
        node = streams.apply_entries(node, entries, slices_done=True)
        if is_batched:
            streams.stack_early(node)
            BatchSize(self.batch_size or 0)
        make_plan = SparsePlan if node.is_sparse else DensePlan
        assert isinstance(self.drop_remainder, DropRemainder)
        plan = make_plan(
            length=node.length,
            num_epochs=self.num_epochs,
            batch_size=self.batch_size or None,
            share=share,
            remainder=self.drop_remainder,
            cut_epochs=True,
        )
        return BatchJob(node, plan)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSampler:
    """Which records stand in each batch, before transforms.

    Attributes:
      batch_size: Records of a batch, over all processes.
      num_records: Number of records.
      num_epochs: How often to go through them; `None` for ever.
      seed: Seed of the order.
      shuffle: Whether each epoch has an order of its own.
      drop_remainder: Whether to leave out an incomplete batch at the end of an epoch.

    Example:
      >>> sampler = BatchSampler(batch_size=2, num_records=5, num_epochs=2)
      >>> [indices.tolist() for indices in sampler]
      [[0, 1], [2, 3], [0, 1], [2, 3]]
      >>> len(sampler)
      4
    """

    batch_size: int
    num_records: int
    num_epochs: int | None = None
    seed: int = 0
    shuffle: bool = False
    drop_remainder: bool = True

    def __len__(self) -> int:
        if self.num_epochs is None:
            raise TypeError(
                "The sampler never ends (num_epochs=None): it has no length."
            )
        return self.num_epochs * len(self._starts)

    def __iter__(self) -> Iterator[np.ndarray]:
        import jax

        per_process = self.batch_size // jax.process_count()
        first = per_process * jax.process_index()
        epochs = (
            itertools.count() if self.num_epochs is None else range(self.num_epochs)
        )
        for epoch in epochs:
            order = np.arange(self.num_records)
            if self.shuffle:
                order = philox_order(self.seed, epoch, self.num_records)
            for start in self._starts:
                batch = order[start : start + self.batch_size]
                yield batch[first : first + per_process]

    @property
    def _starts(self) -> range:
        spare = self.num_records % self.batch_size if self.drop_remainder else 0
        return range(0, self.num_records - spare, self.batch_size)


def philox_order(seed: int, epoch: int, length: int) -> np.ndarray:
    """Return the order of an epoch: numpy's Philox generator, jumped `epoch` times."""
    order = np.arange(length)
    bits = np.random.Philox(key=seed if seed >= 0 else seed % 2**32).jumped(epoch)
    np.random.Generator(bits).shuffle(order)
    return order


class PhiloxShuffleNode(ReorderNode):
    """Epoch `e` in the order that numpy's Philox generator, jumped `e` times, gives."""

    def __init__(self, parent: StreamNode, seed: int):
        super().__init__(parent)
        self._order = functools.lru_cache(maxsize=2)(
            lambda epoch: philox_order(seed, epoch, self.length)
        )

    def parent_positions(self, positions: Positions) -> Positions:
        epochs, indices = np.divmod(as_array(positions), self.length)
        out = np.empty_like(indices)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            out[here] = self._order(epoch)[indices[here]] + epoch * self.length
        return out


class ColumnSource:
    """Random access to the rows of a tree of arrays, whole batches at once.

    The arrays are used as they are, without a copy; records and batches are copies.

    Args:
      columns: A tree of arrays, or of lists, that agree in their first dimension.
      name: Of the data, for messages.
      class_names: Names of the classes, by label, if they are known.

    Example:
      >>> source = ColumnSource({"x": np.arange(6) * 10})
      >>> source.get_batch(np.array([1, 3]))
      {'x': array([10, 30])}
    """

    gives_fresh_records = True
    is_in_memory = True

    def __init__(
        self,
        columns: Any,
        *,
        name: str = "data",
        class_names: Sequence[str] | None = None,
    ):
        self.class_names = class_names
        self.columns = as_columns(columns, name=name)
        self._length = _common_length(self.columns, name)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return trees.map_leaves(lambda column: column[index].copy(), self.columns)

    def get_batch(self, indices: np.ndarray) -> Any:
        return trees.map_leaves(lambda column: _take(column, indices), self.columns)


def _take(column: np.ndarray, indices: np.ndarray) -> np.ndarray:
    # `take` is faster than an index, but copies all of an array that has gaps.
    return (
        column.take(indices, axis=0) if column.flags.c_contiguous else column[indices]
    )


def as_columns(columns: Any, *, name: str) -> Any:
    """Return a tree of arrays: lists become arrays, dicts and tuples hold them."""
    if isinstance(columns, Mapping):
        return {
            key: as_columns(value, name=trees.join(name, key))
            for key, value in columns.items()
        }
    if isinstance(columns, list) or _is_frozen_list(columns):
        return _as_one_column(columns, name)
    if isinstance(columns, tuple):
        values = [as_columns(v, name=f"{name}[{i}]") for i, v in enumerate(columns)]
        return trees.rebuild_sequence(columns, values)
    if columns is None:
        raise ValueError(f"{name} is None; expected an array.")
    column = np.asarray(columns)
    if column.ndim == 0:
        raise ValueError(
            f"{name} is {a_type(columns)} without dimensions"
            f" ({columns!r}); expected an array whose first dimension counts records."
        )
    return column


def _is_frozen_list(columns: Any) -> bool:
    """Return whether a tuple is one column (a list of rows that a config froze).

    Tuples of arrays or lists are several columns.
    """
    return type(columns) is tuple and not any(
        isinstance(row, Mapping | list) or getattr(row, "ndim", 0) for row in columns
    )


def _as_one_column(rows: Sequence[Any], name: str) -> np.ndarray:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"The rows of {name} differ in shape: {error}") from None


def _common_length(columns: Any, name: str) -> int:
    lengths = {path: len(column) for path, column in trees.leaves_with_paths(columns)}
    if not lengths:
        raise ValueError(f"{name} holds no array: {columns!r}.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{path or 'data'}: {n}" for path, n in lengths.items())
        raise ValueError(
            f"The arrays of {name} differ in their first dimension, which counts"
            f" records: {listed}."
        )
    return next(iter(lengths.values()))


@dataclasses.dataclass(frozen=True, eq=False)
class ElementSpecDataset(Pipeline):
    """Yields exactly one batch, all zeros and empty strings, of a given spec.

    For where a model must be initialised but its training data is not at hand, as in
    evaluating a finished run.

    Attributes:
      spec: Tree of `ArraySpec` (or anything with a shape and a dtype), batch dimension
        included.

    Example:
      >>> from kauldron import kd
      >>> spec = {"x": kd.data.ArraySpec((2, 3), "float32")}
      >>> [batch["x"].shape for batch in kd.data.ElementSpecDataset(spec)]
      [(2, 3)]
    """

    spec: Any = dataclasses.field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            raise ValueError(
                f"ElementSpecDataset(batch_size={self.batch_size}): put the batch"
                " dimension into the spec."
            )
        plain = trees.map_leaves(lambda leaf: leaf, self.spec)
        object.__setattr__(self, "spec", plain)

    @property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.spec

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield trees.map_leaves(_zeros, self.spec)


def _zeros(spec: Any) -> Any:
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        return spec
    shape = tuple(1 if size is None else size for size in spec.shape)
    if np.dtype(spec.dtype) == object:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, spec.dtype)
