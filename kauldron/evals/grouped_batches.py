"""Batches that are measured and merged by one compiled call, several at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from kauldron import sharding as kd_sharding
from kauldron.data.iters import as_iterator
from kauldron.evals.batch_program import (
    BatchProgram,
    Vectors,
    abstract_states,
    batch_specs,
)
from kauldron.evals.state_merging import HostMerger
from kauldron.train import preemption, step_cost
from kauldron.train.feeder import Feeder
from kauldron.train.feeds import Feed

if TYPE_CHECKING:
    from kauldron import data
    from kauldron.evals.evaluator import Evaluator
    from kauldron.train import AuxiliariesState, TrainState

_READ_AHEAD = 2
_UNKNOWN_LENGTH_SIZE = 16


@dataclasses.dataclass(frozen=True)
class BatchGroups:
    """How the batches of an evaluation are grouped, and where they go.

    Attributes:
      size: Number of batches of a group.
      total: Number of batches, if it is known.
      limit: Where to stop reading, if that is not the end of the data.
      sharding: Sharding of a batch.
    """

    size: int
    total: int | None
    limit: int | None
    sharding: NamedSharding

    records = None  # batches come from the host

    @classmethod
    def of(
        cls,
        evaluator: Evaluator,
        state: TrainState,
        *,
        total: int | None,
        limit: int | None,
    ) -> Self:
        """Decide how many batches make a short dispatch."""
        sharding: Any = evaluator.base_cfg.sharding.batch or kd_sharding.FIRST_DIM
        size = 1
        if jax.default_backend() != "cpu":  # grouping does not pay there
            most = _most_batches(evaluator, state)
            size = min(most, _even_size(total, most) if total else _UNKNOWN_LENGTH_SIZE)
        return cls(size, total, limit, sharding)

    def size_at(self, step: int) -> int:
        """How many batches to read after `step` of them."""
        if self.limit is not None and step >= self.limit:
            raise StopIteration
        is_near_the_end = self.total is not None and self.total - step < self.size
        return 1 if is_near_the_end else self.size

    def put(self, batch: Any, size: int) -> Any:
        """Bring a batch, or stacked batches, to the devices."""
        if size == 1 and _is_on_device(batch):
            return batch
        sharding = self.sharding
        if size > 1:
            sharding = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
        return kd_sharding.device_put(batch, sharding)

    def put_rows(self, rows: np.ndarray) -> Any:
        raise NotImplementedError

    def read(self, ds: data.IterableDataset) -> contextlib.closing[Feeder]:
        """The groups, read ahead by a thread."""
        return contextlib.closing(
            Feeder(
                as_iterator(ds),
                self,
                step=0,
                depth=_READ_AHEAD,
                while_waiting=preemption.raise_if_stop_requested,
            )
        )

    def of_equal_size(self, feed: Feed) -> Iterator[Feed]:
        """The feed; or its batches, if its size would need a program of its own."""
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
        self, evaluator: Evaluator, state: TrainState, program: BatchProgram | None
    ):
        self.program = program
        self._evaluator = evaluator
        self._state = state
        self._device: Vectors | None = None
        self._host = HostMerger()

    def add(self, feed: Feed, index: int) -> None:
        """Measure the batches of a feed, the first of which has this index."""
        if self.program is None:
            self.program = BatchProgram(self._evaluator, self._state, _one_batch(feed))
        self._device, host = self.program.run(
            self._device,
            index=index,
            state=self._state,
            batches=feed.batch,
            size=feed.size,
        )
        self._host.add(host, feed.size)

    def result(self) -> AuxiliariesState | None:
        """The merged states; `None` if there was no batch."""
        if self.program is None or self._device is None:
            return None
        device = self.program.unpack(self._device)
        return self.program.plan.join({**device, **self._host.result()})


def _is_on_device(batch: Any) -> bool:
    """Whether compiled functions can take the batch just as quickly as it is."""
    return (
        jax.default_backend() == "cpu"
        and jax.device_count() == 1
        and all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(batch))
    )


def _one_batch(feed: Feed) -> Any:
    """A batch of a feed, or its specs."""
    if feed.size == 1:
        return feed.batch
    return jax.eval_shape(lambda batch: jax.tree.map(lambda x: x[0], batch), feed.batch)


def _most_batches(evaluator: Evaluator, state: TrainState) -> int:
    batch = batch_specs(evaluator)
    traced = evaluator.compiled_step.trace(
        step_nr=np.int32(0), state=state, batch=batch
    )
    measured = abstract_states(evaluator, state, batch)
    per_batch = step_cost.num_bytes(batch) + step_cost.num_bytes(measured)
    return step_cost.most_steps(traced.jaxpr, bytes_per_step=per_batch)


def _even_size(total: int, most: int) -> int:
    """A size that leaves few batches over."""
    return total // math.ceil(total / most)
