"""The batches of an evaluation: which ones, in which groups, and their specs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from jax.sharding import NamedSharding

from kauldron import sharding as kd_sharding
from kauldron import status
from kauldron.data import DeviceTransforms
from kauldron.data.engine.batches import DropRemainder, remainder_of
from kauldron.data.iters import Iterator, as_iterator
from kauldron.train import trainer_fields
from kauldron.train.problems import batch_count, is_endless
from kauldron.train.run import dispatch, preemption, step_groups
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
    """Return the batches on the host, limited and cached as asked."""
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
                step_groups.best_size([total], most) if total else _UNKNOWN_LENGTH_SIZE,
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


def _is_on_device(batch: Any) -> bool:
    """Return whether compiled functions take the batch as it is at no extra cost."""
    return _is_host_the_device() and all(
        type(leaf) is np.ndarray for leaf in jax.tree.leaves(batch)
    )


def _is_host_the_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def _most_batches(evaluator: Evaluator, state: TrainState) -> int:
    batch = batch_specs(evaluator)
    traced = evaluator.compiled_step.trace(
        step_nr=np.int32(0), state=state, batch=batch
    )
    measured = abstract_states(evaluator, state, batch)
    per_batch = step_groups.num_bytes(batch) + step_groups.num_bytes(measured)
    return step_groups.most_steps(traced.jaxpr, bytes_per_step=per_batch)


def abstract_states(
    evaluator: Evaluator,
    state: TrainState,
    batch: Any,
    *,
    prepare: Callable[[Any], Any] = lambda batch: batch,
) -> AuxiliariesState:
    """Return the states of a batch (or of its specs), without computing them."""

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
