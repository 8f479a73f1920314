"""Worker processes and background threads: same stream, clear errors, clean ends."""

import contextlib
import dataclasses
import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cloudpickle
import numpy as np
import pytest

from kauldron import kd


class Squares:
    """Records that are made when asked for."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {
            "x": index,
            "y": np.full((3, 2), index**2, np.float32),
            "s": f"<{index}>",
        }


# Workers cannot import this module by name, nor need its imports: send it by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def make_ds(count=20, **kwargs):
    kwargs = {"shuffle": True, "seed": 1, "num_epochs": 1, "batch_size": 3} | kwargs
    return kd.data.py.DataSource(Squares(count), **kwargs)


def assert_same(stream, expected):
    assert len(stream) == len(expected)
    for batch, other in zip(stream, expected):
        np.testing.assert_equal(batch, other)


def wait_until(is_true):
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.01)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def child_pids():
    pids = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
            text = pathlib.Path(f"/proc/self/task/{task}/children").read_text()
            pids += [int(pid) for pid in text.split()]
    return sorted(pids)


def num_threads():
    return sum(thread.name == "kd.data" for thread in threading.enumerate())


def worker_pids(iterator):
    executor = iterator.iter._executor
    return [worker._process.pid for worker in executor._workers]


@pytest.mark.parametrize(
    "num_workers, remainder, count",
    [(1, "drop", 20), (2, "pad", 20), (2, "keep", 2)],  # 2: less than a batch for each
)
def test_the_stream_is_the_same_for_any_number_of_workers(
    num_workers, remainder, count, recwarn
):
    ds = make_ds(count, batch_drop_remainder=remainder, num_epochs=1 + count // 20)
    expected = list(dataclasses.replace(ds, prefetch_batches=0))
    assert_same(list(dataclasses.replace(ds, num_workers=num_workers)), expected)
    assert not [w for w in recwarn if "worker" in str(w.message)]


@pytest.mark.parametrize("remainder", ["drop", "keep", "pad"])
@pytest.mark.parametrize("prefetch_batches", [1, 4])
def test_the_stream_is_the_same_with_background_threads(prefetch_batches, remainder):
    @dataclasses.dataclass
    class ReadOptions:
        num_threads: int
        prefetch_buffer_size: int = 500

    inline = make_ds(50, prefetch_batches=0, batch_drop_remainder=remainder)
    expected = list(inline)
    ds = dataclasses.replace(inline, prefetch_batches=prefetch_batches)
    assert_same(list(ds), expected)
    threads = dataclasses.replace(ds, read_options=ReadOptions(num_threads=4))
    assert_same(list(threads), expected)
    none = dataclasses.replace(ds, read_options=ReadOptions(num_threads=0))
    before = num_threads()
    with iter(none) as iterator:
        next(iterator)
        assert num_threads() == before


def test_state_moves_between_numbers_of_workers():
    ds = make_ds(30, prefetch_batches=0)
    expected = list(ds)
    with iter(dataclasses.replace(ds, num_workers=2)) as iterator:
        for _ in range(4):
            next(iterator)
        state = iterator.get_state()
        assert_same(
            [iterator.next_batches(2)["x"]],
            [np.stack([batch["x"] for batch in expected[4:6]])],
        )
    assert state["next_index"] == 12
    with iter(ds) as iterator:
        iterator.set_state(state)
        assert_same(list(iterator), expected[4:])


def test_filtered_data_comes_through_workers_unchanged():
    class Odd(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 1

    ds = make_ds(
        30, transforms=[Odd()], prefetch_batches=0, batch_drop_remainder="keep"
    )
    expected = list(ds)
    with iter(dataclasses.replace(ds, num_workers=2)) as iterator:
        assert_same(list(iterator), expected)


def test_an_error_in_a_worker_arrives_with_source_record_and_transform():
    class Fails(kd.data.MapTransform):
        def map(self, element):
            if element["x"] == 7:
                raise ValueError("seven")
            return element

    ds = make_ds(shuffle=False, transforms={"check": Fails()}, num_workers=1)
    iterator = iter(ds)
    batches = [next(iterator) for _ in range(2)]
    assert len(batches) == 2
    with pytest.raises(ValueError, match="seven") as info:
        next(iterator)
    notes = "".join(info.value.__notes__)
    for words in (
        "transforms['check']",
        "record 7 of DataSource(Squares)",
        "In data worker 0",
        "Traceback",
    ):
        assert words in notes
    assert iterator.iter._executor is None


def test_a_worker_that_dies_is_reported_with_what_it_was_doing():
    class Dies(kd.data.MapTransform):
        def map(self, element):
            if element["x"] == 4:
                os._exit(3)
            return element

    ds = make_ds(shuffle=False, transforms=[Dies()], num_workers=1)
    iterator = iter(ds)
    next(iterator)
    with pytest.raises(RuntimeError, match=r"exit code 3.*record 3 of DataSource"):
        next(iterator)


def test_closing_ends_all_workers_and_may_be_repeated():
    iterator = iter(make_ds(num_workers=2, num_epochs=None))
    next(iterator)
    pids = worker_pids(iterator)
    assert all(is_alive(pid) for pid in pids)
    iterator.close()
    iterator.close()
    assert not any(is_alive(pid) for pid in pids)
    with pytest.raises(ValueError, match="closed"):
        next(iterator)


def test_a_forgotten_iterator_ends_its_workers_and_threads():
    iterator = iter(make_ds(num_workers=1, num_epochs=None))
    next(iterator)
    (pid,) = worker_pids(iterator)
    del iterator
    gc.collect()
    wait_until(lambda: not is_alive(pid))

    before = num_threads()
    iterator = iter(make_ds(num_epochs=None))
    next(iterator)
    assert num_threads() == before + 1
    del iterator
    gc.collect()
    wait_until(lambda: num_threads() == before)


def test_closing_ends_all_threads():
    before = num_threads()
    iterator = iter(make_ds(num_epochs=None))
    next(iterator)
    assert num_threads() == before + 1
    iterator.close()
    assert num_threads() == before


def test_an_error_in_a_thread_comes_at_its_place_and_the_iterator_can_go_on():
    calls = []

    def fail_once(record):
        if record["x"] == 7 and not calls:
            calls.append(1)
            raise RuntimeError("once")
        return record

    ds = make_ds(shuffle=False, transforms=[fail_once])
    with iter(ds) as iterator:
        first = [next(iterator)["x"].tolist() for _ in range(2)]
        with pytest.raises(RuntimeError, match="once"):
            next(iterator)
        assert first == [[0, 1, 2], [3, 4, 5]]
        assert next(iterator)["x"].tolist() == [6, 7, 8]


def test_workers_run_the_init_function_and_see_no_accelerator():
    class Environment(kd.data.MapTransform):
        def map(self, element):
            import os
            import sys

            return {
                "worker": int(os.environ["MY_WORKER"]),
                "platform": os.environ["JAX_PLATFORMS"],
                "jax": "jax" in sys.modules,
            }

    def init(index, count):
        import os

        os.environ["MY_WORKER"] = str(10 * count + index)
        print("what a worker prints does no harm")

    ds = make_ds(transforms=[Environment()], num_workers=2, worker_init_fn=init)
    with iter(ds) as iterator:
        batches = [next(iterator) for _ in range(2)]
    assert [batch["worker"][0] for batch in batches] == [20, 21]
    assert batches[0]["platform"][0] == "cpu"
    assert not batches[0]["jax"].any()


def test_an_error_in_the_init_function_is_raised():
    def init(index, count):
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        next(iter(make_ds(num_workers=1, worker_init_fn=init)))


def test_what_cannot_be_pickled_falls_back_to_threads_with_a_warning():
    lock = threading.Lock()

    def locked(record):
        with lock:
            return record

    ds = make_ds(transforms=[locked], num_workers=2)
    with pytest.warns(UserWarning, match=r"background threads instead.*pickle"):
        batches = list(ds)
    assert_same(batches, list(make_ds(prefetch_batches=0)))


def test_arrays_in_memory_need_no_workers():
    ds = kd.data.py.Arrays(
        {"x": np.arange(10)}, shuffle=False, batch_size=2, num_workers=4
    )
    with iter(ds) as iterator:
        assert next(iterator)["x"].tolist() == [0, 1]
        assert iterator.iter._executor is None


def test_arrays_with_a_transform_of_single_records_are_built_in_a_thread():
    def keep(record):
        return record

    ds = kd.data.py.Arrays(
        {"x": np.arange(40)},
        shuffle=False,
        batch_size=2,
        num_epochs=1,
        transforms=[keep],
    )
    before = num_threads()
    with iter(ds) as iterator:
        seen = [next(iterator)["x"].tolist() for _ in range(10)]
        assert num_threads() == before + 1
        seen += [batch["x"].tolist() for batch in iterator]
        assert num_threads() == before
    assert np.concatenate(seen).tolist() == list(range(40))


def test_the_spec_starts_no_process():
    before = child_pids()
    ds = make_ds(num_workers=4)
    spec = ds.element_spec
    assert child_pids() == before
    (first, *_) = make_ds(prefetch_batches=0)
    assert spec == kd.data.specs.specs_of(first)
    assert ds.first()["x"].tolist() == first["x"].tolist()


SCRIPT = """
import numpy as np
from kauldron import kd

class Half(kd.data.MapTransform):
    def map(self, element):
        return {"x": element["x"] / 2}

class MyError(Exception):
    pass

def fail(element):
    if element["x"] > 4:
        raise MyError("big")
    return element

ds = kd.data.py.DataSource(
    [{"x": i} for i in range(12)], shuffle=False, num_epochs=1, batch_size=3,
    num_workers=1, transforms=[Half(), fail],
)
it = iter(ds)
print([next(it)["x"].tolist() for _ in range(3)])
try:
    next(it)
except MyError as error:
    print("caught", error, "record 9" in "".join(error.__notes__))
"""


# Runs what it reads as the cells of a notebook: in a `__main__` without a file.
NOTEBOOK = """
import code, sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
shell = code.InteractiveInterpreter(main.__dict__)
for cell in sys.stdin.read().split("\\n\\n"):
    shell.runcode(compile(cell, "<cell>", "exec"))
"""
IPYTHON = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
sys.modules["__main__"] = shell.user_module
for cell in sys.stdin.read().split("\\n\\n"):
    shell.run_cell(cell).raise_error()
"""


@pytest.mark.parametrize(
    "how", ["file", "guarded", "stdin", "command", "notebook", "ipython"]
)
def test_workers_run_in_any_plain_script_and_in_a_notebook(tmp_path, how):
    if how == "ipython":
        pytest.importorskip("IPython", reason="IPython is not installed")
    script = SCRIPT
    if how == "guarded":
        script = "if __name__ == '__main__':\n" + textwrap.indent(script, "    ")
    (tmp_path / "script.py").write_text(script)
    command = {
        "stdin": ["-"],
        "command": ["-c", script],
        "notebook": ["-c", NOTEBOOK],
        "ipython": ["-c", IPYTHON],
    }.get(how, ["script.py"])
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", *command],
        cwd=tmp_path,
        input=script,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        check=True,
    )
    assert done.stdout.splitlines() == [
        "[[0.0, 0.5, 1.0], [1.5, 2.0, 2.5], [3.0, 3.5, 4.0]]",
        "caught big True",
    ]
    assert "worker" not in done.stderr


KILLED = """
import os, signal, sys
from kauldron import kd

def slow(element):
    import time
    time.sleep(0.01)
    return element

ds = kd.data.py.DataSource(
    [{"x": i} for i in range(100)], shuffle=False, batch_size=4, num_workers=2,
    transforms=[slow],
)
it = iter(ds)
next(it)
print(*[worker._process.pid for worker in it.iter._executor._workers], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_die_with_their_parent(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    )
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_workers_leave_signals_to_their_parent():
    with iter(make_ds(num_workers=1, num_epochs=None)) as iterator:
        first = next(iterator)
        (pid,) = worker_pids(iterator)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)
        for _ in range(5):
            next(iterator)
        assert is_alive(pid)
    assert first["x"].shape == (3,)


def test_batches_that_grow_find_room_in_shared_memory():
    class Growing(kd.data.MapTransform):
        def map(self, element):
            import numpy as np

            size = 10 ** (element["x"] // 3)
            return {"x": np.full(size, element["x"]), "t": "t" * size}

    ds = make_ds(15, shuffle=False, transforms=[Growing()], prefetch_batches=0)
    expected = list(ds)
    with iter(dataclasses.replace(ds, num_workers=1, num_epochs=2)) as iterator:
        assert_same(list(iterator), expected * 2)


def test_a_profile_of_the_first_worker_is_printed(capfd):
    with iter(make_ds(num_workers=1, enable_profiling=True)) as iterator:
        list(iterator)
    assert "cumulative" in capfd.readouterr().err


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_interrupt_while_waiting_loses_no_batch(num_workers):
    def slow(element):
        import time

        time.sleep(0.05)
        return element

    ds = make_ds(9, num_epochs=None, transforms=[slow], num_workers=num_workers)

    def interrupt(*_):
        raise KeyboardInterrupt

    with iter(ds) as iterator:
        next(iterator)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(KeyboardInterrupt):
                while True:
                    next(iterator)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        consumed = iterator.get_state()["next_index"] // 3
        again = next(iterator)
    expected = make_ds(9, num_epochs=None)[consumed]
    np.testing.assert_equal(again, expected)
