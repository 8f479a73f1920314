"""What workers share with their parent: the source, the batches, and nothing for long."""

import dataclasses
import gc
import os
import pathlib
import queue
import re
import signal
import sys
import threading

import cloudpickle
import jax
import numpy as np
import pytest

from kauldron import kd
from kauldron.data.engine import batch_memory, trees

MIB = 2**20


class Pictures:
    """Records out of one large array."""

    def __init__(self, count, shape=(128, 128, 8)):
        self.pixels = np.zeros((count, *shape), np.uint8)
        self.pixels += np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return {"image": self.pixels[index], "label": index}


# Workers cannot import this module by name: send it by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def make_ds(count=32, **kwargs):
    kwargs = {"shuffle": False, "num_epochs": 1, "batch_size": 2} | kwargs
    return kd.data.py.DataSource(Pictures(count), **kwargs)


def worker_pids(iterator):
    return [worker._process.pid for worker in iterator.iter._executor._workers]


def kib(text, name):
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1])


def shared_files():
    """Descriptors and mappings of memory without a name, and files in /dev/shm.

    Folders there are those of tests, also of others that run meanwhile.
    """
    gc.collect()
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    found += pathlib.Path("/proc/self/maps").read_text().split()
    named = [path.name for path in pathlib.Path("/dev/shm").iterdir() if path.is_file()]
    return len([f for f in found if "memfd" in f]), sorted(named)


def num_worker_threads(monkeypatch, **environment):
    class Multiply(kd.data.MapTransform):
        def map(self, element):
            import pathlib

            import numpy as np

            matrix = np.ones((600, 600), np.float32)
            np.matmul(matrix, matrix)
            status = pathlib.Path("/proc/self/status").read_text()
            return {"threads": int(status.split("Threads:")[1].split()[0])}

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with iter(make_ds(4, transforms=[Multiply()], num_workers=1)) as iterator:
        return int(next(iterator)["threads"][0])


def test_numeric_libraries_have_one_thread_in_workers_unless_told_otherwise(
    monkeypatch,
):
    alone = num_worker_threads(monkeypatch)
    more = min(2, len(os.sched_getaffinity(0))) - 1  # as many as cores, at most
    assert num_worker_threads(monkeypatch, OPENBLAS_NUM_THREADS="2") == alone + more
    assert num_worker_threads(monkeypatch, OMP_NUM_THREADS="2") == alone + more


def test_all_workers_read_the_arrays_of_the_source_in_the_same_memory():
    ds = make_ds(count=256, batch_size=16, num_workers=2, num_epochs=None)
    size = ds.data_source.pixels.nbytes / MIB
    assert size == 32
    with iter(ds) as iterator:
        for _ in range(16):  # all records
            next(iterator)
        for pid in worker_pids(iterator):
            whole = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            assert kib(whole, "Anonymous") < size * 1024
            maps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
            source = next(
                m
                for m in re.split(r"\n(?=[0-9a-f]+-)", maps)
                if "memfd" in m and kib(m, "Size") > size * 1024
            )
            assert kib(source, "Rss") > size * 1024 // 3  # it has read its half
            assert kib(source, "Anonymous") == 0  # and has no copy


def test_a_worker_may_write_to_the_source_for_itself():
    class Counting(Pictures):
        def __getitem__(self, index):
            self.pixels[index] += 100
            return super().__getitem__(index)

    source = Counting(4)
    ds = kd.data.py.DataSource(
        source, shuffle=False, num_epochs=2, batch_size=4, num_workers=2
    )
    firsts = [batch["image"][:, 0, 0, 0].tolist() for batch in ds]
    assert firsts == [[100, 101, 102, 103]] * 2  # each worker saw it once
    assert source.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_batches_that_are_kept_do_not_change():
    expected = list(make_ds(prefetch_batches=0))
    batches = list(make_ds(num_workers=2))
    assert len(batches) == 16
    np.testing.assert_equal(batches, expected)


def test_batches_are_handed_out_where_the_worker_put_them():
    places = set()
    with iter(make_ds(num_workers=1)) as iterator:
        for batch in iterator:
            assert batch["image"].flags.writeable
            batch["image"][:] = 7  # the consumer's to write to
            places.add(batch["image"].ctypes.data)
    assert len(places) <= 4  # two in the making, one in hand, one just given back


def test_arrays_of_jax_keep_the_batch_that_they_were_made_of():
    # On CPUs jax uses the memory of an aligned numpy array rather than a copy.
    expected = [batch["image"] for batch in make_ds(prefetch_batches=0)]
    with iter(make_ds(num_workers=1)) as iterator:
        arrays = [jax.device_put(batch["image"]) for batch in iterator]
    for array, image in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, image)

    ds = make_ds(num_workers=1).device_put()
    for batch, image in zip(list(ds), expected, strict=True):
        np.testing.assert_array_equal(batch["image"], image)


def test_a_part_of_a_batch_keeps_its_memory():
    with iter(make_ds(num_workers=1)) as iterator:
        corners = [batch["image"][1, :2, :2].reshape(-1)[::2] for batch in iterator]
    assert [corner[0] for corner in corners] == list(range(1, 32, 2))


def test_batches_may_be_let_go_in_another_thread():
    expected = [batch["image"] for batch in make_ds(prefetch_batches=0)] * 4
    waiting = queue.SimpleQueue()
    wrong = []

    def consume():
        for image in expected:
            wrong.append(not np.array_equal(waiting.get(), image))

    thread = threading.Thread(target=consume)
    thread.start()
    with iter(make_ds(num_workers=1, num_epochs=4)) as iterator:
        for batch in iterator:
            waiting.put(batch.pop("image"))
            del batch
    thread.join()
    assert len(wrong) == 64
    assert not any(wrong)


def test_nothing_is_left_of_an_iterator_that_was_dropped():
    jax.device_put(0).block_until_ready()  # jax gives up arrays when it is used again
    before = shared_files()
    iterator = iter(make_ds(num_workers=1))
    batches = [next(iterator) for _ in range(3)]
    assert shared_files() != before
    del iterator
    gc.collect()
    np.testing.assert_array_equal(batches[2]["image"][1], Pictures(6).pixels[5])
    del batches
    assert shared_files() == before


def test_a_killed_worker_is_reported_and_the_next_one_goes_on_with_its_batch():
    expected = list(make_ds(prefetch_batches=0))
    jax.device_put(0).block_until_ready()
    before = shared_files()
    with iter(make_ds(num_workers=2)) as iterator:
        batches = [next(iterator) for _ in range(3)]
        for pid in worker_pids(iterator):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="died with exit code -9"):
            while True:  # what the workers had finished still comes
                batches.append(next(iterator))
        batches += list(iterator)
    np.testing.assert_equal(batches, expected)
    del batches
    assert shared_files() == before


def test_memory_of_slots_that_have_become_too_small_is_given_back():
    class Growing(kd.data.MapTransform):
        def map(self, element):
            import numpy as np

            return {"x": np.full((element["label"] // 4 + 1) * MIB, 1, np.uint8)}

    ds = make_ds(24, transforms=[Growing()], batch_size=1, num_workers=1)
    with iter(ds) as iterator:
        sizes = [next(iterator)["x"].shape[1] // MIB for _ in range(24)]
        (worker,) = iterator.iter._executor._workers
        stat = os.stat(f"/proc/self/fd/{worker._shared_fd}")
    assert sizes == [n // 4 + 1 for n in range(24)]
    assert stat.st_blocks * 512 <= 6 * 1.25 * max(sizes) * MIB


def test_a_pipeline_of_any_arrays_arrives_unchanged():
    odd = {
        "gaps": np.arange(40_000).reshape(200, 200)[:, ::2],
        "columns": np.asfortranarray(np.arange(20_000).reshape(100, 200)),
        "empty": np.zeros((0, 5)),
        "objects": np.array([{"a": 1}, None], object),
        "texts": np.array(["x" * 5000, "y"]),
        "shared": np.arange(5000.0),
    }
    odd["same"] = odd["shared"]

    def attach(record, odd=odd):
        assert odd["same"] is odd["shared"]
        return {"label": record["label"], **odd}

    ds = make_ds(4, transforms=[attach], batch_size=None, prefetch_batches=0)
    np.testing.assert_equal(
        list(dataclasses.replace(ds, num_workers=1)), list(ds), strict=False
    )


def _large(value, shape=(128, 256), dtype=np.uint8):
    return np.full(shape, value, dtype)


@pytest.mark.parametrize(
    "other",
    [
        {"x": _large(2, (128, 257)), "label": 4},
        {"x": _large(2, dtype=np.int8), "label": 4},
        {"x": _large(2)},
        {"x": _large(2), "label": 4, "more": _large(2)},
        {"label": 4},
        (_large(2), 4),
        None,
    ],
)
def test_records_that_differ_are_not_stacked_while_they_come(other):
    stacker = batch_memory.RowStacker(3)
    records = [{"x": _large(1), "label": 3}, other, {"x": _large(5), "label": 6}]
    for record in records:
        stacker.add(record)
    assert stacker.columns() is None
    np.testing.assert_equal(stacker.records, records)


@pytest.mark.parametrize("other", [{}, {"label": 2, "name": "b"}])
def test_records_are_stacked_while_they_come_as_they_would_be_afterwards(other):
    first = {"label": 1, "name": "a"} if other else {}
    records = [{"x": _large(1)} | first, {"x": _large(2)} | other]
    stacker = batch_memory.RowStacker(2)
    for record in records:
        stacker.add(record)
    columns = stacker.columns()
    assert list(columns) == list(trees.stack(records))
    np.testing.assert_equal(columns, trees.stack(records))


def test_large_arrays_are_placed_where_jax_can_use_them():
    for shape in ((300, 301), (7, 5, 1024)):
        array = batch_memory.empty(shape, np.float32)
        assert array.shape == shape and array.flags.c_contiguous
        assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data


def test_memory_is_used_again_when_nobody_holds_it():
    def take(size):
        return batch_memory.empty((size,), np.uint8)

    array = take(100_007)  # a size of this test
    place = array.ctypes.data
    part = array[:100_000].view(np.float32).reshape(250, 100)[3:5, ::2]
    del array
    assert take(100_007).ctypes.data != place  # a view holds it
    on_device = jax.device_put(np.asarray(take(100_007)))
    assert on_device.unsafe_buffer_pointer() != place
    del part
    assert take(100_009).ctypes.data != place  # of another size
    assert take(100_007).ctypes.data == place


def test_what_jax_uses_is_not_overwritten():
    """Each result is that of its own batch, whatever is built in the meantime."""
    compute = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: (y @ x) / 256, x))
    results, inputs = [], []
    for value in range(12):
        batch = batch_memory.empty((256, 256), np.float32)
        batch[:] = value
        inputs.append(batch.ctypes.data)
        results.append(compute(batch))
        kept = jax.device_put(batch)  # without a copy
        del batch
        batch_memory.empty((256, 256), np.float32)[:] = -1.0
        assert float(kept[0, 0]) == value
        del kept
    assert len(set(inputs)) < 12  # some were used again
    for value, result in enumerate(results):
        np.testing.assert_allclose(result, float(value) ** 21, rtol=1e-4)
