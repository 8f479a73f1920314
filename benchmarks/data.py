"""Throughput and memory of data pipelines.

Arrays in memory against numpy doing the same on whole batches; records of a Python
object against bare grain. Both at three sizes, to see that cost grows with the work.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from figures import in_turn, show

from kauldron import kd

BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    args = parser.parse_args()
    array_sizes = (512, 1024, 2048) if args.tiny else (15_000, 60_000, 240_000)
    record_sizes = (256, 512, 768) if args.tiny else (2_048, 4_096, 8_192)
    repeats = 1 if args.tiny else 9
    for size in array_sizes:
        report_arrays(size, repeats, num_batches=8 if args.tiny else 400)
    for size in record_sizes:
        report_records(size, repeats)
    report_memory(array_sizes[-1])


def report_arrays(size: int, repeats: int, *, num_batches: int) -> None:
    """Arrays with `ValueRange`, shuffled."""
    data = make_arrays(size)
    transform = kd.data.ValueRange(key="image", vrange=(0, 1))
    ds = kd.data.py.Arrays(
        data, shuffle=True, seed=0, batch_size=BATCH, transforms=[transform]
    )
    ours, limit = interleaved(
        lambda: drain(iter(ds), num_batches),
        lambda: drain(numpy_batches(data), num_batches),
        repeats,
    )
    show(
        f"data/arrays_{size}",
        ours=num_batches * BATCH / ours,
        limit=num_batches * BATCH / limit,
        unit="records/s",
        digits=2,
    )


def numpy_batches(data: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """What a careful person writes by hand."""
    size = len(data["label"])
    rng = np.random.default_rng(0)
    scale = np.float32(1 / 255)
    while True:
        order = rng.permutation(size)
        for start in range(0, size - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            image = np.multiply(data["image"][rows], scale, dtype=np.float32)
            yield {"image": image, "label": data["label"][rows]}


class Records:
    """Records of an object that knows nothing of batches."""

    def __init__(self, data: dict[str, np.ndarray]):
        self._data = data

    def __len__(self) -> int:
        return len(self._data["label"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._data.items()}


def scaled(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "image": record["image"] * np.float32(1 / 255)}


def report_records(size: int, repeats: int) -> None:
    """One pass over records, with a function of the user applied to each."""
    import grain

    source = Records(make_arrays(size))
    ds = kd.data.py.DataSource(
        source,
        shuffle=True,
        seed=0,
        batch_size=BATCH,
        num_epochs=1,
        transforms=[scaled],
    )
    bare = grain.MapDataset.source(source).seed(0).shuffle().map(scaled).batch(BATCH)
    options = grain.ReadOptions(num_threads=0)
    num_batches = size // BATCH
    ours, limit = interleaved(
        lambda: drain(iter(ds), num_batches),
        lambda: drain(iter(bare.to_iter_dataset(options)), num_batches),
        repeats,
    )
    show(
        f"data/records_{size}",
        ours=size / ours,
        limit=size / limit,
        unit="records/s",
        digits=2,
    )


def report_memory(size: int) -> None:
    """Peak memory that a pass over arrays adds to that of the arrays."""
    data = make_arrays(size)
    before = peak_mib()
    ds = kd.data.py.Arrays(data, shuffle=True, seed=0, batch_size=BATCH, num_epochs=1)
    drain(iter(ds), len(ds))
    show(
        f"data/peak_memory_{size}",
        ours=peak_mib() - before,
        limit=sum(column.nbytes for column in data.values()) / 2**20,
        unit="MiB beyond the data (limit: the data itself)",
        digits=2,
    )


def make_arrays(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (size, 28, 28, 1), dtype=np.uint8)
    return {"image": image, "label": rng.integers(0, 10, size)}


def drain(batches: Any, count: int) -> None:
    for _ in range(count):
        next(batches)
    if hasattr(batches, "close"):
        batches.close()


def interleaved(
    ours: Callable[[], None], limit: Callable[[], None], repeats: int
) -> tuple[float, float]:
    """Median CPU seconds of both, taken in turn, after one round to warm up.

    CPU time of all threads, because it does not depend on what else the machine does.
    """
    ours()
    limit()
    times = in_turn(ours, limit, rounds=repeats, clock=time.process_time)
    return statistics.median(times[0]), statistics.median(times[1])


def peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


if __name__ == "__main__":
    main()
