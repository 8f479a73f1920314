"""map, take, cache, prefetch and device_put."""

import dataclasses
import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd
from kauldron.data.iters import as_iterator


def make_ds(count=20, **kwargs):
    kwargs = {"shuffle": False, "num_epochs": 1, "batch_size": 4} | kwargs
    return kd.data.py.Arrays({"x": np.arange(count)}, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generated(kd.data.Pipeline):
    """A pipeline that is nothing but a generator."""

    count: int = 5

    def __iter__(self):
        for i in range(self.count):
            yield {"x": np.array([i])}


def xs(batches):
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def plus_100(batch):
    return {"x": batch["x"] + 100, "y": batch["x"].astype(np.float32)}


def num_threads():
    return sum(thread.name == "kd.data" for thread in threading.enumerate())


def test_map_changes_batches_and_the_spec():
    ds = make_ds().map(plus_100)
    assert xs(ds)[0] == [100, 101, 102, 103]
    assert len(ds) == 5
    assert ds.element_spec == {
        "x": kd.data.ArraySpec((4,), "int64"),
        "y": kd.data.ArraySpec((4,), "float32"),
    }


@pytest.mark.parametrize("count, expected", [(0, 0), (2, 2), (5, 5), (9, 5)])
def test_take_gives_the_first_batches(count, expected):
    ds = make_ds().take(count)
    assert len(ds) == expected
    assert xs(ds) == xs(make_ds())[:expected]
    assert ds.element_spec == make_ds().element_spec


def test_take_gives_endless_data_a_length():
    assert len(make_ds(num_epochs=None).take(7)) == 7
    assert len(list(make_ds(num_epochs=None).take(7))) == 7


def test_taking_a_negative_number_is_refused():
    with pytest.raises(ValueError, match=r"take\(-1\)"):
        make_ds().take(-1)


def test_cache_reads_the_data_once():
    calls = []

    def count(batch):
        calls.append(1)
        return batch

    ds = make_ds().map(count).cache()
    first = xs(ds)
    assert xs(ds) == first == xs(make_ds())
    assert len(calls) == 5


def test_cache_is_not_filled_by_a_part_of_a_pass():
    ds = make_ds().cache()
    next(iter(ds))
    assert xs(ds) == xs(make_ds())


def test_cache_of_endless_data_says_what_to_do():
    with pytest.raises(TypeError, match=r"use `.take\(n\)` before `.cache\(\)`"):
        make_ds(num_epochs=None).cache()


@pytest.mark.parametrize("buffer_size", [0, 1, 8])
def test_prefetch_changes_nothing_but_time(buffer_size):
    ds = make_ds().prefetch(buffer_size)
    assert xs(ds) == xs(make_ds()) == xs(ds)
    assert len(ds) == 5


def test_a_negative_prefetch_is_refused():
    with pytest.raises(ValueError, match=r"prefetch\(-1\)"):
        make_ds().prefetch(-1)


def test_prefetch_reads_ahead_and_raises_at_the_right_place():
    seen = []

    def fail_late(batch):
        seen.append(int(batch["x"][0]))
        if batch["x"][0] == 8:
            raise RuntimeError("late")
        return batch

    iterator = iter(make_ds().map(fail_late).prefetch(2))
    assert next(iterator)["x"][0] == 0
    assert next(iterator)["x"][0] == 4
    with pytest.raises(RuntimeError, match="late"):
        next(iterator)
    iterator.close()
    assert seen[:3] == [0, 4, 8]


def outcomes(iterator):
    """What each call of `next` gives: a batch, or "error"."""
    found = []
    while True:
        try:
            found.append(next(iterator)["x"].tolist())
        except StopIteration:
            return found
        except RuntimeError:
            found.append("error")


class FailsOnce:
    """A source whose record 8 cannot be read at first."""

    def __init__(self):
        self.has_failed = False

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 8 and not self.has_failed:
            self.has_failed = True
            raise RuntimeError("not now")
        return {"x": index}


@pytest.mark.parametrize("buffer_size", [0, 1, 3])
def test_no_batch_is_lost_after_an_error_of_the_source(buffer_size):
    ds = kd.data.py.DataSource(FailsOnce(), shuffle=False, num_epochs=1, batch_size=4)
    first, second, *rest = xs(make_ds())
    iterator = iter(ds.prefetch(buffer_size))
    assert outcomes(iterator) == [first, second, "error", *rest]


@pytest.mark.parametrize("buffer_size", [0, 1, 3])
def test_prefetch_goes_on_after_an_error_of_a_map(buffer_size):
    def fail_on_8(batch):
        if batch["x"][0] == 8:
            raise RuntimeError("bad batch")
        return batch

    first, second, _, *rest = xs(make_ds())
    iterator = iter(make_ds().map(fail_on_8).prefetch(buffer_size))
    assert outcomes(iterator) == [first, second, "error", *rest]


def test_state_after_an_error_is_that_of_the_batches_received():
    ds = kd.data.py.DataSource(FailsOnce(), shuffle=False, num_epochs=1, batch_size=4)
    iterator = iter(ds.prefetch(3))
    next(iterator), next(iterator)
    with pytest.raises(RuntimeError, match="not now"):
        next(iterator)
    again = iter(make_ds())
    again.set_state(iterator.get_state())
    assert xs(again) == xs(make_ds())[2:]
    iterator.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interrupted(Generated):
    """A generator that ends with an error at first."""

    failures: list

    def __len__(self):
        return self.count

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number == 2 and not self.failures:
                self.failures.append(number)
                raise RuntimeError("not now")
            yield batch


def test_cache_does_not_take_what_came_before_an_error_for_all():
    ds = Interrupted(failures=[]).cache()
    assert outcomes(iter(ds)) == [[0], [1], "error"]
    assert xs(ds) == [[0], [1], [2], [3], [4]]


def test_cache_that_another_pass_filled_goes_on_at_the_same_place():
    ds = make_ds().cache()
    iterator = iter(ds)
    next(iterator), next(iterator)
    whole = xs(ds)
    assert xs(iterator) == whole[2:]


def test_prefetch_ends_its_thread():
    before = num_threads()
    iterator = iter(make_ds(num_epochs=None).prefetch(3))
    next(iterator)
    assert num_threads() == before + 1
    iterator.close()
    assert num_threads() == before
    iterator = iter(make_ds(num_epochs=None).prefetch(3))
    next(iterator)
    del iterator
    gc.collect()
    assert num_threads() <= before + 1


CHAINS = {
    "map": lambda ds: ds.map(plus_100),
    "take": lambda ds: ds.take(4),
    "take_take": lambda ds: ds.take(6).map(plus_100).take(4),
    "cache": lambda ds: ds.cache(),
    "prefetch": lambda ds: ds.prefetch(3),
    "device_put": lambda ds: ds.device_put(),
    "all": lambda ds: ds.map(plus_100).prefetch(4).take(4).device_put(),
    "cache_prefetch": lambda ds: ds.take(5).cache().prefetch(2),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("consumed", [0, 1, 3])
def test_ops_go_on_where_the_consumer_was(chain, consumed):
    ds = CHAINS[chain](make_ds())
    expected = xs(ds)
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    state = iterator.get_state()
    iterator.close()
    again = iter(CHAINS[chain](make_ds()))
    again.set_state(state)
    assert xs(again) == expected[consumed:]
    same = iter(ds)
    same.set_state(state)
    assert xs(same) == expected[consumed:]


def test_a_generator_can_be_iterated_but_not_restored(caplog):
    ds = Generated().map(plus_100).prefetch(1)
    assert xs(ds) == [[100], [101], [102], [103], [104]]
    iterator = iter(ds)
    assert isinstance(iterator, kd.data.iters.NonCheckpointableIterator)
    assert iterator.get_state() == {}
    iterator.set_state({})
    assert "restarts from the beginning" in caplog.text


def test_a_generator_pipeline_has_a_spec_and_no_length():
    ds = Generated()
    assert ds.element_spec == {"x": kd.data.ArraySpec((1,), "int64")}
    with pytest.raises(TypeError, match="unknown"):
        len(ds)
    assert len(list(as_iterator(ds))) == 5


def test_the_repr_of_an_op_reads_nothing():
    def explode():
        raise AssertionError("was read")

    ds = kd.data.py.Arrays(explode, shuffle=False, batch_size=2, num_epochs=1)
    assert "explode" in repr(ds.map(plus_100).prefetch(2).device_put())


def test_parents_are_left_alone():
    ds = make_ds()
    ds.map(plus_100).take(1)
    assert xs(ds) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
        [12, 13, 14, 15],
        [16, 17, 18, 19],
    ]


# ----------------------------------------------------------------------------
# device_put
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["none", "first_dim", "tree", "callable"])
def test_device_put_gives_arrays_on_the_devices(argument):
    sharding = {
        "none": None,
        "first_dim": kd.sharding.FIRST_DIM,
        "tree": {"x": kd.sharding.FIRST_DIM},
        "callable": lambda batch: {"x": kd.sharding.FIRST_DIM},
    }[argument]
    for batch in make_ds().device_put(sharding):
        assert isinstance(batch["x"], jax.Array)
        assert batch["x"].sharding == kd.sharding.FIRST_DIM
        assert batch["x"].dtype == jnp.int32


def test_device_put_without_arguments_is_the_first_dimension():
    (batch, *_) = make_ds().device_put()
    assert batch["x"].sharding == kd.sharding.FIRST_DIM


def test_device_put_works_under_a_transfer_guard():
    with jax.transfer_guard("disallow"):
        assert len(list(make_ds().device_put())) == 5


def test_texts_cannot_be_put_on_a_device_and_are_named():
    ds = kd.data.py.DataSource(
        [{"text": "abc"}], shuffle=False, num_epochs=1, batch_size=1
    )
    with pytest.raises(TypeError, match=r"text.*kd\.data\.Elements"):
        list(ds.device_put())


def test_single_numbers_cannot_be_split_over_devices():
    ds = kd.data.py.DataSource([{"label": 1}], shuffle=False, num_epochs=1)
    with pytest.raises(ValueError) as info:
        list(ds.device_put())
    assert "{label: int}" in "".join(info.value.__notes__)
    (batch,) = ds.device_put(kd.sharding.REPLICATED)
    assert batch["label"].shape == ()


def test_stacked_batches_come_through_ops():
    ds = make_ds(22, batch_drop_remainder="keep").map(plus_100)
    iterator = iter(ds)
    assert iterator.next_batches(3)["x"].tolist() == xs(ds)[:3]
    assert iterator.next_batches(9)["x"].shape == (2, 4)
    assert iterator.next_batches(9)["x"].shape == (1, 2)
    with pytest.raises(StopIteration):
        iterator.next_batches(1)
