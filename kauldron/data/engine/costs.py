"""What each stage of building a batch costs, and who should therefore build them.

Measured on a few records of the pipeline itself, in the process that wants them. The
choice changes how fast batches come, never what is in them.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

from kauldron.data.engine import batch_memory
from kauldron.data.engine.batches import BatchJob
from kauldron.data.engine.nodes import Chunk

_RECORDS_AT_ONCE = 32
_MAX_SPANS = 256
_SECONDS = 0.25


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds that a record takes.

    Time in which other programs had the cores does not count.

    Attributes:
      computing: On a core.
      waiting: For a disk or a network.
    """

    computing: float = 0.0
    waiting: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.computing + self.waiting

    def __add__(self, other: Self) -> Cost:
        return Cost(self.computing + other.computing, self.waiting + other.waiting)

    def __truediv__(self, count: int) -> Cost:
        return Cost(self.computing / count, self.waiting / count)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What it takes to build batches.

    Attributes:
      stages: From the name of each stage to what a record costs there.
      num_records: How many were measured.
      batch_size: Records of a batch on this process.
      thread_speedup: How many times as fast two threads are as one.
    """

    stages: dict[str, Cost]
    num_records: int
    batch_size: int
    thread_speedup: float

    @property
    def building(self) -> Cost:
        """What a record costs before it is sent anywhere."""
        names = [name for name in self.stages if name not in (SEND, RECEIVE)]
        return sum((self.stages[name] for name in names), Cost())

    @property
    def builders(self) -> Builders:
        """Who should build the batches, on this machine."""
        return choose(self, num_usable_cores())

    def __str__(self) -> str:
        shown = (f"{n} {c.total * 1e3:.3g} ms" for n, c in self.stages.items())
        return f"a record costs: {', '.join(shown)}"


BATCHING = "batching"
SEND = "transport: worker"
RECEIVE = "transport: parent"


def measure(job: BatchJob, *, seconds: float = _SECONDS) -> Costs:
    """Measure what a record costs at each stage, on records from the beginning.

    Takes about twice as long as `seconds`: the second half is for two threads.
    """
    ones = list(itertools.islice(_spans(job, 1), 2))
    if not ones:
        raise ValueError("There are no records to measure.")
    list(_stages(job, ones[0]))  # what is imported and opened on first use
    start = time.perf_counter()
    list(_stages(job, ones[-1]))
    at_once = seconds / 4 / (time.perf_counter() - start)  # slow ones one by one
    at_once = max(1, min(int(at_once), _RECORDS_AT_ONCE))
    spans = list(itertools.islice(_spans(job, at_once), _MAX_SPANS))
    sums: dict[str, Cost] = {}
    num_records, span, batch = 0, spans[0], None
    deadline = time.perf_counter() + seconds
    for span in spans:
        stopwatch = _Stopwatch()
        for name, value in _stages(job, span):
            sums[name] = sums.get(name, Cost()) + stopwatch.lap()
            num_records += len(span) if name == BATCHING else 0
            batch = value
        if time.perf_counter() > deadline:
            break
    stages = {name: cost / num_records for name, cost in sums.items()}
    stages |= _transport(batch, len(span))
    speedup = _thread_speedup(lambda span: list(_stages(job, span)), spans, seconds)
    if job.skipped is not None:
        job.skipped.drain()  # they are met again
    return Costs(stages, num_records, job.plan.local_batch_size, speedup)


def _spans(job: BatchJob, at_once: int) -> Iterator[range]:
    """Yield stream positions, so many at once."""
    count = job.plan.num_units
    for unit in itertools.count() if count is None else range(count):
        positions = job.plan.positions(unit)
        for start in range(0, len(positions), at_once):
            yield positions[start : start + at_once]


def _stages(job: BatchJob, span: range) -> Iterator[tuple[str, Any]]:
    """Build records, and yield after each stage its name and what it gave."""
    chunk = Chunk(0)
    for name, chunk in job.node.fetch_by_stage(span):
        yield name, chunk
    if not chunk.size:
        yield BATCHING, None
    elif job.plan.batch_size:
        yield BATCHING, job.columns(chunk, span)
    else:
        yield BATCHING, chunk.own_records()


def _transport(batch: Any, num_records: int) -> dict[str, Cost]:
    """Measure the way from a worker, in memory as workers share it."""
    fd = batch_memory.open_shared_file()
    try:
        slots = batch_memory.SharedSlots(fd, 1)
        reader = batch_memory.SharedReader(fd, num_slots=1, num_held=1)
        slots.dump(0, batch)
        reader.load(reader.take_slot(), slots.dump(0, batch))
        stopwatch = _Stopwatch()
        message = slots.dump(reader.take_slot(), batch)
        send = stopwatch.lap()
        reader.load(0, message)
        receive = stopwatch.lap()
    finally:
        os.close(fd)
    return {SEND: send / num_records, RECEIVE: receive / num_records}


def _thread_speedup(
    build: Callable[[range], Any], spans: Sequence[range], seconds: float
) -> float:
    """Return how many times as fast two threads are as one."""
    speeds = []
    for num_threads in (1, 2):
        start = time.perf_counter()
        deadline = start + seconds / 2

        def work(_: int, deadline: float = deadline) -> int:
            for done, span in enumerate(itertools.cycle(spans), start=1):
                build(span)
                if time.perf_counter() > deadline:
                    return done
            raise AssertionError("unreachable")

        with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
            done = sum(pool.map(work, range(num_threads)))
        speeds.append(done / (time.perf_counter() - start))
    return speeds[1] / speeds[0]


class _Stopwatch:
    """Tells what this thread did since it was last asked."""

    def __init__(self):
        self._last = self._now()

    def lap(self) -> Cost:
        before, self._last = self._last, self._now()
        total, computing, queueing = (b - a for a, b in zip(before, self._last))
        return Cost(computing, max(0.0, total - computing - queueing))

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.thread_time(), _seconds_in_run_queue()


def _seconds_in_run_queue() -> float:
    """For how long this thread was ready to run while others had the cores."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


# ----------------------------------------------------------------------------
# The choice
# ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Builders:
    """Who builds batches.

    Attributes:
      kind: Threads of this process, or processes of their own.
      count: How many.
      reason: Why, in words.
    """

    kind: Literal["threads", "processes"]
    count: int
    reason: str

    def __str__(self) -> str:
        what = {"threads": "background thread", "processes": "worker process"}
        plural = {"threads": "s", "processes": "es"}
        ending = plural[self.kind] if self.count > 1 else ""
        return f"{self.count} {what[self.kind]}{ending}: {self.reason}"


_CHEAP_BATCH = 2e-3  # seconds: not worth the memory and the start of processes
_MAX_WAITING_THREADS = 32
_FEW_CORES = 4
_GOOD_SPEEDUP = 1.6


def choose(costs: Costs, num_cores: int) -> Builders:
    """Return who should build batches that cost so much."""
    building = costs.building
    per_batch = building.total * costs.batch_size
    if per_batch < _CHEAP_BATCH:
        reason = f"a batch takes {per_batch * 1e3:.2g} ms"
        return Builders("threads", 1, reason)
    if building.waiting > building.total / 2:
        count = min(_MAX_WAITING_THREADS, 4 * num_cores)
        return Builders("threads", count, "records are waited for, not computed")
    if num_cores == 1:
        return Builders("threads", 1, "there is one core")
    if num_cores <= _FEW_CORES and costs.thread_speedup >= _GOOD_SPEEDUP:
        reason = f"two threads are {costs.thread_speedup:.1f} times as fast as one"
        return Builders("threads", num_cores, reason)
    count = num_cores - (1 if num_cores <= _FEW_CORES else 2)
    return Builders("processes", count, f"{num_cores} cores, some left to the consumer")


def num_usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
