"""The base of the random-access pipelines: stream, batches, threads and workers."""

from __future__ import annotations

import dataclasses
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from kauldron.data.dataset import IterableDataset
from kauldron.data.engine import costs, keys, streams, workers
from kauldron.data.engine.batches import (
    BatchJob,
    BatchSize,
    DensePlan,
    DropRemainder,
    Plan,
    Share,
    SparsePlan,
    current_share,
    inherit_share,
)
from kauldron.data.engine.entries import Entry, Kind, parse_entries
from kauldron.data.engine.executors import Executor, ThreadExecutor
from kauldron.data.engine.nodes import SkippedRecords, StreamNode
from kauldron.data.pipeline import check_epochs, frozen_transforms
from kauldron.data.stream_pipeline import StreamPipeline
from kauldron.data.transforms.forms import batch_form, warm_up

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StreamOptions:
    """How a stream is to be built.

    Attributes:
      as_records: Whether sources should give single records rather than columns.
      skipped: Where bad records are noted, if they may be left out.
    """

    as_records: bool = False
    skipped: SkippedRecords | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PyGrainPipeline(StreamPipeline):
    """Records by position, transformed, batched, shared among processes.

    Attributes:
      batch_size: Over all processes; `None` for single records.
      seed: See `kd.data.Pipeline`.
      transforms: What is done to the records, in order: a list, or a dict from names
        (by which command lines reach them). Entries are transforms of `kd.data`, of
        `kd.data.py` or of grain, and functions of one record.
      num_epochs: `None` for endless data.
      batch_drop_remainder: What happens to the last records that fill no batch: `True`
        or "drop", `False` or "keep", "pad".
      num_workers: Worker processes that build batches. `None` or 0: none, which is the
        fastest for arrays in memory. "auto": the first iterator measures, chooses how
        many threads or processes, and logs what it chose. The batches are the same.
      read_options: Object with `num_threads` (such as `grain.ReadOptions`): how many
        background threads build batches; by default one, for folders of images as many
        as there are batches to prepare ahead.
      per_worker_buffer_size: Batches that each worker holds ready.
      enable_profiling: Whether the first worker prints a profile when it ends.
      shard_by_process: Whether processes share the records; else each gets all.
      worker_init_fn: Called as `fn(worker_index, worker_count)` first in each worker.
      batch_mask_key: Name of an additional field, `bool[batch]`, that is false for the
        filler of a padded batch. Losses and metrics leave filler out without it.
      prefetch_batches: Batches that background threads prepare ahead; 0: no thread.
        Arrays in memory whose transforms all have a batch form need no thread.
      max_bad_records: How many records may fail to be read or transformed. They are
        left out and logged; one more is an error. Makes the pipeline one with holes,
        as a filter does.
    """

    transforms: Sequence[Any] | Mapping[str, Any] = ()
    num_epochs: int | None = None
    batch_drop_remainder: bool | str | DropRemainder = DropRemainder.DROP
    num_workers: int | Literal["auto"] | None = None
    read_options: Any = None
    per_worker_buffer_size: int = 1
    enable_profiling: bool = False
    shard_by_process: bool = True
    worker_init_fn: Callable[[int, int], Any] | None = None
    batch_mask_key: str | None = None
    prefetch_batches: int = 2
    max_bad_records: int = 0

    _slices_at_source: ClassVar[bool] = False  # where `SliceDataset` selects records

    __root_cfg_fields_to_recurse__ = ("transforms",)

    def __post_init__(self) -> None:
        super().__post_init__()
        remainder = DropRemainder(self.batch_drop_remainder)
        object.__setattr__(self, "batch_drop_remainder", remainder)
        object.__setattr__(self, "transforms", frozen_transforms(self.transforms))
        check_epochs(self)
        parse_entries(self.transforms)
        if isinstance(self.num_workers, str) and self.num_workers != "auto":
            raise ValueError(
                f"{type(self).__name__}(num_workers={self.num_workers!r}): expected a"
                " number, None or 'auto'."
            )
        for name in ("num_workers", "prefetch_batches", "max_bad_records"):
            self._check_at_least(name, 0)
        self._check_at_least("per_worker_buffer_size", 1)
        if self.batch_mask_key is not None and not self.batch_size:
            raise ValueError(
                f"{type(self).__name__}(batch_mask_key={self.batch_mask_key!r}) needs a"
                " batch_size: single records are never padded."
            )

    def _check_at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value not in (None, "auto") and value < least:
            raise ValueError(
                f"{type(self).__name__}({name}={value}): expected {least} or more."
            )

    # ------------------------------------------------------------------------
    # What sub-classes give
    # ------------------------------------------------------------------------

    def _stream(self, key: keys.Key, options: StreamOptions) -> StreamNode:
        """Return the stream of all processes, before `transforms`."""
        raise NotImplementedError(
            f"{type(self).__name__} must override ds_for_current_process, or derive from"
            " kd.data.py.DataSourceBase and give a data_source."
        )

    def _stream_with_transforms(
        self, key: keys.Key, options: StreamOptions
    ) -> StreamNode:
        """Return the stream of all processes, after `transforms`."""
        return streams.apply_entries(
            self._stream(key, options),
            self._entries,
            skipped=options.skipped,
            slices_done=self._slices_at_source,
        )

    @property
    def _is_in_memory(self) -> bool:
        """Whether records are columns in memory, so that workers gain nothing."""
        return False

    def ds_for_current_process(self, rng: Any) -> Any:
        """Return this process's records as a `grain.MapDataset`, before `transforms`.

        Override it to build the data with grain; the pipeline then runs through grain.

        Args:
          rng: A `kd.random.PRNGKey`, the same on all processes.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no data: define `data_source`, or"
            " `ds_for_current_process(self, rng)` to build it with grain."
        )

    def ds_with_transforms(self, rng: Any) -> Any:
        """Return this process's records as a `grain.MapDataset`, after `transforms`."""
        from kauldron.data.py import grain_adapter

        return grain_adapter.with_transforms(
            self.ds_for_current_process(rng), self._entries
        )

    # ------------------------------------------------------------------------
    # The job
    # ------------------------------------------------------------------------

    @property
    def _entries(self) -> tuple[Entry, ...]:
        return parse_entries(self.transforms)

    def _all_entries(self) -> Iterator[Entry]:
        yield from self._entries

    @property
    def _is_foreign(self) -> bool:
        """Whether the user builds the data with grain."""
        return any(
            _is_overridden(type(self), name)
            for name in ("ds_for_current_process", "ds_with_transforms")
        )

    @property
    def gives_single_records(self) -> bool:
        return super().gives_single_records and not self._is_foreign

    @property
    def _max_skipped(self) -> int:
        return self.max_bad_records

    def with_remainder(self, remainder: DropRemainder) -> IterableDataset:
        if self._is_foreign and current_share().count > 1:
            return self  # processes may have more or fewer records, and must not wait
        return super().with_remainder(remainder)

    def _make_job(self, share: Share) -> BatchJob:
        if self.batch_size:
            BatchSize(self.batch_size)  # says if it cannot be shared
        skipped = SkippedRecords() if self.max_bad_records else None
        owner = None
        if self._is_foreign:
            from kauldron.data.py import grain_adapter

            node: StreamNode = grain_adapter.GrainNode(
                grain_adapter.dataset_of(self), name=self._name, skipped=skipped
            )
            owner = share
        else:
            options = StreamOptions(not self.batch_size, skipped)
            root_key = keys.root_key(self.effective_seed)
            node = self._stream_with_transforms(root_key, options)
            if self.batch_size:
                streams.stack_early(node)
        plan = self._make_plan(node, share, is_own=owner is not None)
        return BatchJob(node, plan, self.batch_mask_key, skipped, owner)

    def _make_plan(self, node: StreamNode, share: Share, *, is_own: bool) -> Plan:
        batch_size = self.batch_size or None
        if is_own or not self.shard_by_process:
            if batch_size:
                batch_size //= share.count
            share = Share()
        is_sparse = node.is_sparse or bool(self.max_bad_records)
        make_plan = SparsePlan if is_sparse else DensePlan
        assert isinstance(self.batch_drop_remainder, DropRemainder)
        return make_plan(
            length=node.length,
            num_epochs=self.num_epochs,
            batch_size=batch_size,
            share=share,
            remainder=self.batch_drop_remainder,
        )

    # ------------------------------------------------------------------------
    # Who builds the batches
    # ------------------------------------------------------------------------

    def _make_executor(self, job: BatchJob) -> Executor | None:
        num_workers, num_threads = self._num_builders(job)
        if num_workers:
            try:
                return self._start_workers(job, num_workers)
            except workers.CannotStartError as error:
                warnings.warn(
                    f"{self._name}: no worker processes, background threads instead:"
                    f" {error}.",
                    stacklevel=2,
                )
        if not self.prefetch_batches or not num_threads:
            return None
        if self._is_quick and self.read_options is None:
            return None
        for entry in self._all_entries():
            warm_up(entry.transform)
        return ThreadExecutor(
            job.build,
            job.plan.num_units,
            ahead=max(self.prefetch_batches, num_threads),
            num_threads=num_threads,
        )

    def _num_builders(self, job: BatchJob) -> tuple[int, int]:
        """Return how many worker processes build batches, and how many threads else."""
        num_workers = self.num_workers or 0
        if num_workers and self._is_in_memory:
            _log_once(
                f"{self._name}: arrays in memory need no worker processes; num_workers="
                f"{self.num_workers} is ignored.",
            )
            num_workers = 0
        if num_workers != "auto":
            return num_workers, self._num_threads
        builders = self._builders(job)
        if builders.kind == "threads":
            return 0, builders.count
        return builders.count, self._num_threads

    @property
    def _num_threads(self) -> int:
        """How many background threads build batches where no workers do."""
        return getattr(self.read_options, "num_threads", 1)

    def _builders(self, job: BatchJob) -> costs.Builders:
        """Return who builds batches with `num_workers="auto"`, measured once."""
        if self._chosen_builders:
            return self._chosen_builders[0]
        try:
            measured = costs.measure(job)
        except Exception as error:  # met again, at its place, by who builds the batch
            builders = costs.Builders(
                "threads", 1, f"it could not be measured: {error}"
            )
        else:
            builders = measured.builders
            _log.info(
                "%s: num_workers='auto' takes %s; %s.", self._name, builders, measured
            )
        self._chosen_builders.append(builders)
        return builders

    @functools.cached_property
    def _chosen_builders(self) -> list[costs.Builders]:
        return []

    @property
    def _is_quick(self) -> bool:
        """Whether building a batch is likely cheaper than waking a thread for it."""
        return self._is_in_memory and all(
            entry.kind is Kind.SLICE or batch_form(entry.transform) is not None
            for entry in self._all_entries()
        )

    def _start_workers(self, job: BatchJob, num_workers: int) -> Executor:
        share = job.owner or job.plan.share
        return workers.WorkerExecutor(
            _Recipe(self, share, job.plan, job.left_out),
            job.plan.num_units,
            num_workers=num_workers,
            ahead=self.per_worker_buffer_size + 1,
            init_fn=self.worker_init_fn,
            profile=self.enable_profiling,
            describe=lambda unit: _describe_unit(job, unit),
        )


@functools.cache
def _log_once(message: str) -> None:
    _log.info("%s", message)


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How a worker makes the job that its parent has."""

    pipeline: PyGrainPipeline
    share: Share
    plan: Plan
    left_out: int

    def __call__(self) -> BatchJob:
        inherit_share(self.share)
        job = self.pipeline._make_job(self.share).without_last(self.left_out)
        return dataclasses.replace(job, plan=self.plan)


def _describe_unit(job: BatchJob, unit: int) -> str:
    positions = job.plan.positions(unit)
    what = "a batch" if job.plan.batch_size else "a record"
    return (
        f"{what} of {len(positions)}, the first being {job.node.locate(positions[0])}"
    )


def _is_overridden(cls: type, name: str) -> bool:
    for parent in cls.__mro__:
        if name in vars(parent):
            return not parent.__module__.startswith("kauldron.data.")
    return False
