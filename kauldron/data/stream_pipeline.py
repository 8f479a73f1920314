"""Pipelines that are a stream cut into batches: what they all can do."""

from __future__ import annotations

import abc
import dataclasses
import functools
import operator
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from kauldron.batch_mask import BATCH_MASK, UnmaskableError
from kauldron.data.dataset import IterableDataset, shared_class_names
from kauldron.data.engine import trees
from kauldron.data.engine.batches import (
    BatchJob,
    DropRemainder,
    Plan,
    Share,
    SparsePlan,
    current_share,
)
from kauldron.data.engine.costs import Costs, measure
from kauldron.data.engine.entries import Entry, Kind
from kauldron.data.engine.executors import Executor
from kauldron.data.engine.iterator import BatchIterator
from kauldron.data.engine.nodes import Chunk
from kauldron.data.iters import PyGrainIterator
from kauldron.data.pipeline import Pipeline, check_choice
from kauldron.data.specs import ArraySpec, specs_of


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class StreamPipeline(Pipeline):
    """A pipeline whose batches are a function of their number.

    So iteration can be resumed anywhere, and single batches can be read.

    Attributes:
      batch_size: See `kd.data.Pipeline`.
      seed: See `kd.data.Pipeline`.
      device_transforms: Whether training and evaluation may run the last transforms on
        the device, where batches are smaller before them than after them. "auto": if
        it is an accelerator. See `kd.data.DeviceTransforms`.
    """

    device_transforms: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "device_transforms")

    @abc.abstractmethod
    def _make_job(self, share: Share) -> BatchJob:
        """Return the job of a process, from the beginning."""

    @abc.abstractmethod
    def _all_entries(self) -> Iterator[Entry]:
        """Return the entries of `transforms=`, of the pipeline and of its parts."""

    def _make_executor(self, job: BatchJob) -> Executor | None:
        """Start what builds it in the background, if anything does."""
        return None

    @property
    def _name(self) -> str:
        """What messages call the data."""
        return type(self).__name__

    @property
    def gives_single_records(self) -> bool:
        return self.batch_size == 0 and not any(
            entry.kind is Kind.BATCH for entry in self._all_entries()
        )

    def __iter__(self) -> PyGrainIterator:
        job = self._make_job(current_share())
        self._check(job)
        return PyGrainIterator(source=self, iter=self._iterate(job))

    def __len__(self) -> int:
        plan = self._job.plan
        if isinstance(plan, SparsePlan):
            raise TypeError(
                f"The number of batches of {self._name} is unknown: how many records"
                f" are left depends on {_droppers(self._job)}."
            )
        if plan.num_units is None:
            raise TypeError(
                f"{self._name} has no end (num_epochs=None), and thus no number of"
                " batches: set `num_epochs`."
            )
        return plan.num_units

    def __getitem__(self, index: Any) -> Any:
        """Return a batch (or record) by its number, or a list of them by a slice."""
        job = self._job
        if isinstance(job.plan, SparsePlan):
            raise TypeError(
                f"{self._name} has no random access: which record comes when depends on"
                f" {_droppers(job)}."
            )
        if isinstance(index, slice):
            return [self[i] for i in _indices(index, job.plan.num_units)]
        number, count = operator.index(index), job.plan.num_units
        if count is not None and number < 0:
            number += count
        if number < 0 or (count is not None and number >= count):
            found = "no end" if count is None else f"{count} batches"
            raise IndexError(f"{self._name}[{index}]: it has {found}.")
        piece = job.build(number)
        if piece.survivors is not None:
            where = job.node.locate(job.plan.positions(number)[0])
            raise TypeError(
                f"{self._name}[{index}]: a transform returned None for some record from"
                f" {where} on; filtered data has no random access."
            )
        return piece.value

    def first(self) -> Any:
        """Return the first batch, without starting a thread or process."""
        job = self._make_job(current_share())
        for batch in self._iterate(job, in_background=False):
            return batch
        length, size = job.node.length, self.batch_size or 1
        reason = "it has no records"
        if length:
            reason = f"its {length} records do not fill one of batch_size={size}"
        raise ValueError(f"{self._name} has no batch: {reason}.")

    def profile(self, *, seconds: float = 2.0, num_left_out: int = 0) -> Costs:
        """Measure what a record costs: source, transforms, batching, transport.

        `kauldron data profile --cfg=...` prints it as a table.

        Args:
          seconds: For how long to measure, about; as long again with threads.
          num_left_out: How many of the last transforms are not done on the host: see
            `kd.data.DeviceTransforms`.

        Returns:
          The cost of a record at each stage, in `stages`, and in `builders` who should
          build batches that cost so much.
        """
        job = self._make_job(current_share()).without_last(num_left_out)
        return measure(job, seconds=seconds)

    @functools.cached_property
    def element_spec(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Spec of a batch of this process. Reads one record, starts nothing."""
        job = self._job
        chunk, position = self._first_record(job)
        if job.plan.batch_size is None:
            return specs_of(chunk.own_records()[0])
        columns = job.columns(chunk, range(position, position + 1))
        size, plan = job.plan.local_batch_size, job.plan
        if plan.remainder is DropRemainder.KEEP and plan.total is not None:
            size = min(size, plan.total)
        columns = job.with_masks(columns, 1)
        return trees.map_leaves(
            lambda c: ArraySpec((size, *c.shape[1:]), c.dtype), columns
        )

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        return OtherRemainder(
            parent=self,
            remainder=remainder,
            batch_size=self.batch_size,
            seed=self.seed,
            device_transforms=self.device_transforms,
        )

    # ------------------------------------------------------------------------

    @property
    def _max_skipped(self) -> int:
        return 0

    @property
    def _job(self) -> BatchJob:
        """The job of this process, made once: for what needs no iterator."""
        share = current_share()
        if share not in self._jobs:
            self._jobs[share] = self._make_job(share)
        return self._jobs[share]

    @functools.cached_property
    def _jobs(self) -> dict[Share, BatchJob]:
        return {}

    def _iterate(self, job: BatchJob, *, in_background: bool = True) -> BatchIterator:
        return BatchIterator(
            job,
            self._make_executor if in_background else None,
            name=self._name,
            max_skipped=self._max_skipped,
        )

    def _first_record(self, job: BatchJob) -> tuple[Chunk, int]:
        if not job.node.length:
            raise ValueError(
                f"{self._name} has no records: check its source, its split, and what"
                " slices it."
            )
        for position in range(job.node.length):
            chunk = job.node.fetch(range(position, position + 1))
            if chunk.size:
                return chunk, position
        if job.node.filter_names():
            raise ValueError(f"{self._name} has no records that pass {_droppers(job)}.")
        raise ValueError(
            f"{self._name} has no records left: each of its {job.node.length} is None,"
            " which stands for a record that is left out, or bad."
        )

    def _check(self, job: BatchJob) -> None:
        """Refuse what could only hang or end in nothing."""
        plan, total = job.plan, job.plan.total
        if not plan.length and total is None:
            raise ValueError(
                f"{self._name} has no records, so it cannot be repeated without end"
                " (num_epochs=None)."
            )
        if not isinstance(plan, SparsePlan):
            self._check_batches(plan)
        elif plan.share.count > 1 and (total is not None or plan.cut_epochs):
            raise ValueError(
                f"{self._name} drops records ({_droppers(job)})"
                f" and ends, so its {plan.share.count} processes would end at different"
                " times and wait for each other. Use num_epochs=None, or filter the"
                " data beforehand."
            )

    def _check_batches(self, plan: Plan) -> None:
        records = plan.length if plan.cut_epochs else plan.total
        if not plan.batch_size or records is None:
            return
        count, remainder = plan.share.count, plan.remainder
        if remainder is DropRemainder.KEEP and count > 1 and records % plan.batch_size:
            raise ValueError(
                f"{self._name}: {records} records do not fill batches of"
                f" {plan.batch_size}, and a smaller last batch cannot be shared by"
                f" {count} processes; use batch_drop_remainder='pad'."
            )
        if remainder is DropRemainder.DROP and records < plan.batch_size:
            message = (
                f"{self._name} has {records} records, fewer than one batch of"
                f" {plan.batch_size}, so there is no batch at all; use a smaller batch,"
                " or 'pad' or 'keep' for the remainder."
            )
            if plan.total is None:
                raise ValueError(message)
            warnings.warn(message, stacklevel=4)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OtherRemainder(StreamPipeline):
    """The batches of another pipeline, except for the last one.

    It reads through that pipeline, so that nothing is opened or kept twice.

    Attributes:
      parent: The pipeline.
      remainder: What happens to the last, smaller batch.
    """

    parent: StreamPipeline
    remainder: DropRemainder

    @property
    def num_epochs(self) -> int | None:
        return getattr(self.parent, "num_epochs", 1)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, by label; `None` where the parent does not know them."""
        return shared_class_names([self.parent])

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        return self.parent.with_remainder(remainder)

    def __iter__(self) -> PyGrainIterator:
        job = self._job
        is_sparse = isinstance(job.plan, SparsePlan)
        is_padded = BATCH_MASK in job.mask_names and not is_sparse
        if is_padded and not isinstance(self.element_spec, dict):
            raise UnmaskableError(
                f"The last batch of {self._name} would have to be filled up, but a "
                f"{type(self.element_spec).__name__} cannot carry the mask of its "
                "filler: make the records dicts."
            )
        return super().__iter__()

    def _make_job(self, share: Share) -> BatchJob:
        job = self.parent._make_job(share)
        plan = dataclasses.replace(job.plan, remainder=self.remainder)
        return dataclasses.replace(job, plan=plan)

    def _all_entries(self) -> Iterator[Entry]:
        return self.parent._all_entries()

    def _make_executor(self, job: BatchJob) -> Executor | None:
        return self.parent._make_executor(job)

    @property
    def _name(self) -> str:
        return self.parent._name

    @property
    def _max_skipped(self) -> int:
        return self.parent._max_skipped


def is_stream(dataset: Any) -> bool:
    """Return whether our own iterator gives the batches of a data set.

    Nothing writes to a batch once it is handed out: each has memory of its own.
    """
    return isinstance(dataset, StreamPipeline) and (
        type(dataset).__iter__.__module__ == __name__
    )


def _droppers(job: BatchJob) -> str:
    """Name what may drop records, for messages."""
    return ", ".join(job.node.filter_names()) or "which records are bad"


def _indices(chosen: slice, count: int | None) -> range:
    if count is not None:
        return range(*chosen.indices(count))
    start, stop, step = chosen.start or 0, chosen.stop, chosen.step or 1
    if stop is None or start < 0 or stop < 0 or step < 0:
        raise ValueError(
            f"{chosen} of endless data: give a stop, and no negative number."
        )
    return range(start, stop, step)
