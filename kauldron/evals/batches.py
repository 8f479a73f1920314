"""The batches of an evaluation: which ones, their groups, and how they are measured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from kauldron import sharding as kd_sharding
from kauldron import status
from kauldron.data import DeviceTransforms
from kauldron.data.engine.batches import DropRemainder, remainder_of
from kauldron.data.iters import Iterator, as_iterator
from kauldron.evals.state_merging import HostMerger, MergePlan, States
from kauldron.train import trainer_fields
from kauldron.train.problems import batch_count, is_endless
from kauldron.train.run import dispatch, preemption
from kauldron.train.run.feed import Feed, Feeder

if TYPE_CHECKING:
    from kauldron import data
    from kauldron.evals.evaluator import Evaluator
    from kauldron.train import AuxiliariesState, TrainState


#
# Which batches
#


_READ_AHEAD = 2


def select_batches(
    ds: data.IterableDataset,
    *,
    num_batches: int | None = None,
    cache: bool = False,
    owner: str,
) -> data.IterableDataset:
    """Return the batches on the host, limited and cached as asked.

    Args:
      ds: The data, as `every_record` gives it.
      num_batches: How many batches; `None` for all.
      cache: Whether to keep them in memory during the first pass.
      owner: Name of the evaluator, for messages.

    Raises:
      ValueError: The data has no end, or its length is needed and unknown.
    """
    if num_batches is not None:
        ds = ds.take(num_batches)
    elif is_endless(ds):
        raise ValueError(
            f"The data of evaluator {owner!r} repeats forever: set "
            f"`cfg.evals.{owner}.num_batches`, or `num_epochs=1` in its data."
        )
    if not cache:
        return ds
    if batch_count(ds) is None:
        raise ValueError(
            f"Evaluator {owner!r}: `cache=True` needs `num_batches`, because the length "
            "of its data is unknown."
        )
    return ds.cache()


def every_record(ds: data.IterableDataset) -> data.IterableDataset:
    """Return the data with its last batch filled up and masked, whatever training does.

    Data with `drop_remainder=KEEP` keeps its last batch as it is on a single device;
    several devices can only share whole batches.
    """
    keeps = remainder_of(ds) is DropRemainder.KEEP and jax.device_count() == 1
    return ds.with_remainder(DropRemainder.KEEP if keeps else DropRemainder.PAD)


def unpadded(ds: data.IterableDataset) -> data.IterableDataset:
    """Return the data without filler; drop a last batch that devices cannot share."""
    is_single = jax.device_count() == 1
    return ds.with_remainder(DropRemainder.KEEP if is_single else DropRemainder.DROP)


def on_devices(ds: data.IterableDataset, sharding: Any) -> Iterator:
    """Return the batches on the devices, from the first one; read ahead by a thread."""
    return as_iterator(ds.prefetch(_READ_AHEAD).device_put(sharding))


#
# Groups of batches
#


_UNKNOWN_LENGTH_SIZE = 16


@dataclasses.dataclass(frozen=True)
class BatchGroups:
    """How the batches of an evaluation are grouped, and where they go.

    Attributes:
      size: Number of batches of a group.
      total: Number of batches, if it is known.
      limit: Where to stop reading, if that is not the end of the data.
      sharding: Sharding of a batch.
      transforms: What is left to do to the batches on the devices.
    """

    size: int
    total: int | None
    limit: int | None
    sharding: NamedSharding
    transforms: DeviceTransforms | None = None

    records = None  # batches come from the host
    in_calls = False

    @classmethod
    def of(
        cls,
        evaluator: Evaluator,
        state: TrainState,
        ds: data.IterableDataset,
        *,
        total: int | None,
        limit: int | None,
    ) -> Self:
        """Decide how many batches make a short dispatch, and what is done to them there."""
        sharding: Any = evaluator.base_cfg.sharding.batch or kd_sharding.FIRST_DIM
        size = 1
        if jax.default_backend() != "cpu":  # grouping does not pay there
            most = _most_batches(evaluator, state)
            size = min(
                most,
                dispatch.best_group([total], most) if total else _UNKNOWN_LENGTH_SIZE,
            )
        transforms = DeviceTransforms.of(ds, sharding=sharding)
        if transforms is not None:
            name = evaluator.name
            status.log(
                f"These transforms run on the device, inside the step of {name}: {transforms}."
            )
        return cls(size, total, limit, sharding, transforms)

    def size_at(self, step: int) -> int:
        """Return how many batches to read after `step` of them."""
        if self.limit is not None and step >= self.limit:
            raise StopIteration
        is_near_the_end = self.total is not None and self.total - step < self.size
        return 1 if is_near_the_end else self.size

    def put(self, batch: Any, size: int) -> Any:
        """Bring a batch, or stacked batches, to the devices."""
        if size == 1 and _is_on_device(batch):
            return batch
        return dispatch.put_batches(batch, self.sharding, size)

    def put_rows(self, rows: np.ndarray) -> Any:
        raise NotImplementedError

    def read(self, ds: data.IterableDataset) -> contextlib.closing[Feeder]:
        """Return the groups, read ahead by a thread."""
        iterator: Any = as_iterator(ds)
        if self.transforms is not None:
            self.transforms.leave_out(iterator)
        return contextlib.closing(
            Feeder(
                iterator,
                self,
                step=0,
                depth=_READ_AHEAD,
                while_waiting=preemption.raise_if_stop_requested,
            )
        )

    def of_equal_size(self, feed: Feed) -> Iterable[Feed]:
        """Yield the feed, or its batches if its size would need another program."""
        if feed.size in (1, self.size):
            yield feed
            return
        for index in range(feed.size):
            batch = jax.tree.map(lambda leaf, i=index: leaf[i], feed.batch)
            yield Feed(1, batch, feed.position)


class GroupMerger:
    """Measures groups of batches and merges what is measured, in one call each.

    Attributes:
      program: What is compiled; kept for the next evaluation.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        state: TrainState,
        groups: BatchGroups,
        program: BatchProgram | None,
    ):
        self.program = program
        self._groups = groups
        self._evaluator = evaluator
        self._state = state
        self._device: Vectors | None = None
        self._host = HostMerger()

    def add(self, feed: Feed, index: int) -> None:
        """Measure the batches of a feed, the first of which has this index."""
        if self.program is None:
            self.program = BatchProgram(
                self._evaluator,
                self._state,
                _one_batch(feed),
                transforms=self._groups.transforms,
            )
        self._device, host = self.program.run(
            self._device,
            index=index,
            state=self._state,
            batches=feed.batch,
            size=feed.size,
        )
        self._host.add(host, feed.size)

    def result(self) -> AuxiliariesState | None:
        """Return the merged states; `None` if there was no batch."""
        if self.program is None or self._device is None:
            return None
        device = self.program.unpack(self._device)
        return self.program.plan.join({**device, **self._host.result()})


def _is_on_device(batch: Any) -> bool:
    """Return whether compiled functions can take the batch just as quickly as it is."""
    return _is_host_the_device() and all(
        type(leaf) is np.ndarray for leaf in jax.tree.leaves(batch)
    )


def _is_host_the_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def _one_batch(feed: Feed) -> Any:
    """Return a batch of a feed, or its specs."""
    if feed.size == 1:
        return feed.batch
    return jax.eval_shape(lambda batch: jax.tree.map(lambda x: x[0], batch), feed.batch)


def _most_batches(evaluator: Evaluator, state: TrainState) -> int:
    batch = batch_specs(evaluator)
    traced = evaluator.compiled_step.trace(
        step_nr=np.int32(0), state=state, batch=batch
    )
    measured = abstract_states(evaluator, state, batch)
    per_batch = dispatch.num_bytes(batch) + dispatch.num_bytes(measured)
    return dispatch.most_steps(traced.jaxpr, bytes_per_step=per_batch)


#
# One compiled call that measures batches and merges what is measured
#


Vectors = list[Any]


class BatchProgram:
    """Measures batches of an evaluator. Made once, because it is compiled.

    What was merged goes from call to call packed into a few vectors.

    Attributes:
      plan: Which states merge on the device.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        state: TrainState,
        batch: Any,
        *,
        transforms: DeviceTransforms | None = None,
    ):
        """Find out what is measured.

        Args:
          evaluator: Says what to measure.
          state: A state to evaluate.
          batch: A batch, or its specs.
          transforms: What to do to batches before.
        """
        self._evaluator = evaluator
        self._transforms = transforms
        self._sharding = evaluator.base_cfg.sharding.aux
        aux = abstract_states(evaluator, state, batch, prepare=self._prepare)
        self.plan = MergePlan(aux)
        device, _ = self.plan.split(aux)
        self._packing = LeafPacking(jax.eval_shape(_merge, device, device))

    @functools.cached_property
    def _nothing(self) -> Vectors:
        """Zeros, for the call on the first batch: its result does not depend on them."""
        return jax.device_put(self._packing.zeros(), self._sharding)

    def run(
        self,
        merged: Vectors | None,
        *,
        index: int,
        state: TrainState,
        batches: Any,
        size: int,
    ) -> tuple[Vectors, States]:
        """Measure batches.

        Args:
          merged: What earlier calls gave; `None` for the first one.
          index: Index of the first batch.
          state: The state to evaluate.
          batches: A batch; with `size > 1`, that many stacked on a leading axis.
          size: Number of batches.

        Returns:
          What is merged so far, and the states that merge on the host.
        """
        is_first = np.bool_(merged is None)
        merged = self._nothing if merged is None else merged
        return self._measure(size, merged, is_first, np.int32(index), state, batches)

    def unpack(self, merged: Vectors) -> States:
        """Return what was merged, by name; waits for it."""
        return self._packing.unpack(jax.device_get(merged))

    @functools.cached_property
    def _measure(self) -> Any:
        """Compiled; it belongs to this program, and goes with it."""
        return jax.jit(self._measure_all, static_argnums=0)

    def _measure_all(
        self,
        size: int,
        vectors: Vectors,
        is_first: Any,
        index: Any,
        state: TrainState,
        batches: Any,
    ) -> tuple[Vectors, States]:
        body = functools.partial(self._measure_one, state=state)
        carry = (self._packing.unpack(vectors), is_first, index)
        if size == 1:
            (merged, *_), host = body(carry, batches)
        else:
            (merged, *_), host = jax.lax.scan(body, carry, batches)
        vectors = self._packing.pack(merged)
        return kd_sharding.with_sharding_constraint(vectors, self._sharding), host

    def _measure_one(
        self, carry: Any, batch: Any, state: TrainState
    ) -> tuple[Any, States]:
        merged, is_first, index = carry
        batch = self._prepare(batch)
        aux = self._evaluator.step(step_nr=index, state=state, batch=batch)
        device, host = self.plan.split(aux)
        merged = jax.tree.map(
            lambda a, b: jnp.where(is_first, a.astype(b.dtype), b),
            device,
            _merge(merged, device),
        )
        return (merged, jnp.zeros_like(is_first), index + 1), host

    def _prepare(self, batch: Any) -> Any:
        """Return the batch as the step of the evaluator gets it."""
        if self._transforms is None:
            return batch
        sharding = self._evaluator.base_cfg.sharding.batch
        return kd_sharding.with_sharding_constraint(
            self._transforms.apply(batch), sharding
        )


def _merge(mine: States, other: States) -> States:
    return {name: state.merge(other[name]) for name, state in mine.items()}


def abstract_states(
    evaluator: Evaluator,
    state: TrainState,
    batch: Any,
    *,
    prepare: Callable[[Any], Any] = lambda batch: batch,
) -> AuxiliariesState:
    """Return the states of a batch (or of its specs), without computing them.

    Args:
      evaluator: Says what to measure.
      state: A state to evaluate.
      batch: A batch, or its specs.
      prepare: What is done to it before.
    """

    def step(index: Any, state: TrainState, batch: Any) -> AuxiliariesState:
        return evaluator.step(step_nr=index, state=state, batch=prepare(batch))

    return jax.eval_shape(step, np.int32(0), state, batch).replace(error=None)


def batch_specs(evaluator: Evaluator) -> Any:
    """Return a global batch of the evaluator's data as `jax.ShapeDtypeStruct`s.

    They are placed as its batches are: for others, the step would be traced again.
    """
    specs = trainer_fields.global_batch_specs(
        evaluator.records.element_spec, evaluator.base_cfg.sharding.batch
    )
    if evaluator.looks_at_each_batch() or not _is_host_the_device():
        return specs
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), specs)


#
# Many small arrays as a few: compiled calls are quicker with fewer arguments. On a CPU,
# a tiny model takes 130 instead of 190 microseconds a batch with 3 metrics, and 120
# instead of 300 with 12
#


_LARGEST_PACKED = 64


class LeafPacking:
    """How the small leaves of a tree are put into one vector per dtype.

    Example:
      >>> tree = {"a": np.float32(1), "b": np.ones((2, 2), np.float32), "c": np.int32(3)}
      >>> packing = LeafPacking(tree)
      >>> [vector.tolist() for vector in packing.pack(tree)]
      [[1.0, 1.0, 1.0, 1.0, 1.0], [3]]
      >>> packing.unpack(packing.pack(tree))["b"].shape
      (2, 2)
    """

    def __init__(self, tree: Any):
        """Look at a tree of arrays, or at their specs."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._dtypes = [leaf.dtype for leaf in leaves]
        groups: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            is_large = math.prod(leaf.shape) > _LARGEST_PACKED
            groups.setdefault(index if is_large else leaf.dtype, []).append(index)
        self._groups = list(groups.values())

    def zeros(self) -> list[np.ndarray]:
        """Return the vectors of a tree of zeros."""
        return [
            np.zeros(
                sum(math.prod(self._shapes[index]) for index in group),
                self._dtypes[group[0]],
            )
            for group in self._groups
        ]

    def pack(self, tree: Any) -> list[Any]:
        """Return the leaves in vectors."""
        leaves = jax.tree.leaves(tree)
        return [
            jnp.concatenate([jnp.ravel(leaves[index]) for index in group])
            for group in self._groups
        ]

    def unpack(self, vectors: list[Any]) -> Any:
        """Return the tree again; of numpy arrays, if the vectors are some."""
        leaves: list[Any] = [None] * len(self._shapes)
        for group, vector in zip(self._groups, vectors):
            start = 0
            for index in group:
                shape = self._shapes[index]
                end = start + math.prod(shape)
                leaves[index] = vector[start:end].reshape(shape)
                start = end
        return self._structure.unflatten(leaves)
