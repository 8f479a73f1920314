import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kauldron import kd
from kauldron.data.engine.batches import Share


def make_ds(count=5, **kwargs):
    return kd.data.InMemoryPipeline(loader=lambda: {"x": np.arange(count)}, **kwargs)


def xs(batches):
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def test_every_epoch_is_cut_on_its_own():
    ds = make_ds(num_epochs=2, batch_size=3)
    assert xs(ds) == [[0, 1, 2], [0, 1, 2]]
    assert len(ds) == 2


@pytest.mark.parametrize(
    "remainder, epoch",
    [
        (True, [[0, 1, 2]]),
        (False, [[0, 1, 2], [3, 4]]),
        ("keep", [[0, 1, 2], [3, 4]]),
        ("pad", [[0, 1, 2], [3, 4, 0]]),
    ],
)
def test_the_remainder_of_each_epoch(remainder, epoch):
    ds = make_ds(num_epochs=2, batch_size=3, drop_remainder=remainder)
    assert xs(ds) == epoch * 2
    assert len(ds) == len(epoch) * 2


def test_shuffled_order_is_that_of_philox():
    ds = make_ds(50, shuffle=True, seed=7, num_epochs=3, batch_size=50)
    for epoch, batch in enumerate(ds):
        order = np.arange(50)
        bits = np.random.Philox(key=7).jumped(epoch)
        np.random.Generator(bits).shuffle(order)
        np.testing.assert_array_equal(batch["x"], order)


def test_shuffling_needs_no_seed():
    first = xs(make_ds(50, shuffle=True, num_epochs=1, batch_size=10))
    assert first == xs(make_ds(50, shuffle=True, num_epochs=1, batch_size=10))
    assert sorted(x for batch in first for x in batch) == list(range(50))


def test_the_loader_is_called_once_and_late():
    calls = []

    def load():
        calls.append(1)
        return {"x": np.arange(4)}

    ds = kd.data.InMemoryPipeline(loader=load, num_epochs=1, batch_size=2)
    assert not calls
    list(ds), list(ds), ds.element_spec, ds.examples
    assert calls == [1]
    assert ds.num_examples == 4


def test_the_data_is_not_copied():
    array = np.arange(4)
    ds = kd.data.InMemoryPipeline(loader=lambda: {"x": array}, batch_size=2)
    assert ds.examples["x"] is array


@given(
    size=st.integers(1, 20),
    batch_size=st.one_of(st.none(), st.sampled_from([2, 4, 6])),
    consumed=st.integers(0, 10),
    remainder=st.sampled_from(["drop", "keep", "pad"]),
)
def test_iteration_goes_on_where_it_stopped(size, batch_size, consumed, remainder):
    assume(batch_size is None or size >= batch_size)
    ds = make_ds(
        size,
        shuffle=True,
        num_epochs=3,
        batch_size=batch_size,
        drop_remainder=remainder,
    )
    expected = xs(ds)
    assume(consumed <= len(expected))
    iterator, again = iter(ds), iter(ds)
    for _ in range(consumed):
        next(iterator)
    again.set_state(iterator.get_state())
    assert xs(again) == expected[consumed:]


def test_processes_get_contiguous_parts_of_each_batch():
    ds = make_ds(10, shuffle=True, num_epochs=2, batch_size=4)
    whole = xs(ds)
    parts = [xs(ds._iterate(ds._make_job(Share(index=p, count=2)))) for p in range(2)]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole


def test_a_kept_remainder_cannot_be_shared(as_process):
    as_process(0, 2)
    with pytest.raises(ValueError, match="'pad'"):
        iter(make_ds(5, batch_size=2, drop_remainder=False))


def test_transforms_run_on_columns_and_slices_select_records():
    ds = make_ds(
        20,
        shuffle=True,
        num_epochs=2,
        batch_size=3,
        transforms=[kd.data.Cast(key="x", dtype="float32"), kd.data.py.SliceDataset(3)],
    )
    for batch in ds:
        assert batch["x"].dtype == np.float32
        assert sorted(batch["x"].tolist()) == [0, 1, 2]


def test_endless_data_has_no_length():
    with pytest.raises(TypeError, match="no end"):
        len(make_ds(batch_size=2))


def test_endless_data_smaller_than_a_batch_is_refused_at_once():
    with pytest.raises(ValueError, match=r"5 records.*batch of 8"):
        iter(make_ds(batch_size=8))


def test_finite_data_smaller_than_a_batch_warns():
    with pytest.warns(UserWarning, match=r"5 records.*batch of 8"):
        assert list(make_ds(batch_size=8, num_epochs=1)) == []


@pytest.mark.parametrize(
    "data, words",
    [
        ({"a": np.zeros(3), "b": {"c": np.zeros(4)}}, ["a: 3", "b.c: 4"]),
        ({"a": np.float32(3)}, [".a", "without dimensions"]),
        ({}, ["holds no array"]),
        ({"a": None}, [".a is None"]),
        ({"a": [[1], [1, 2]]}, [".a", "differ in shape"]),
    ],
)
def test_data_that_is_no_table_is_refused(data, words):
    ds = kd.data.InMemoryPipeline(loader=lambda: data, batch_size=1)
    with pytest.raises(ValueError) as info:
        iter(ds)
    for word in words:
        assert word in str(info.value)


def test_lists_become_arrays():
    ds = kd.data.InMemoryPipeline(
        loader=lambda: {"a": [1, 2], "b": ["x", "yz"], "c": ([1, 2], np.zeros((2, 3)))},
        num_epochs=1,
        batch_size=2,
    )
    (batch,) = ds
    assert batch["b"].tolist() == ["x", "yz"]
    assert batch["c"][1].shape == (2, 3)


@pytest.mark.parametrize("num_epochs", [0, -1, 1.5, True, "2"])
def test_a_number_of_epochs_that_is_none_is_refused(num_epochs):
    with pytest.raises(ValueError, match="num_epochs"):
        make_ds(num_epochs=num_epochs)
    with pytest.raises(ValueError, match="num_epochs"):
        kd.data.py.Arrays({"x": [1]}, shuffle=False, num_epochs=num_epochs)


class AddNoise(kd.data.RandomMapTransform):
    """Adds a number in [0, 1) to each record."""

    def random_map(self, element, rng):
        return {"x": element["x"] + rng.random()}


def make_noisy(**kwargs):
    kwargs = {"num_epochs": 2, "batch_size": 4, "transforms": [AddNoise()]} | kwargs
    return make_ds(8, **kwargs)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_random_transforms_follow_the_seed(batch_size):
    draws = xs(make_noisy(seed=1, batch_size=batch_size))
    assert draws == xs(make_noisy(seed=1, batch_size=batch_size))
    assert draws != xs(make_noisy(seed=2, batch_size=batch_size))


def test_random_transforms_draw_anew_in_each_epoch():
    first, second = np.split(np.concatenate(xs(make_noisy(seed=1))) % 1, 2)
    assert not set(first) & set(second)


def test_random_transforms_draw_what_other_pipelines_draw():
    arrays = kd.data.py.Arrays(
        {"x": np.arange(8)},
        shuffle=False,
        seed=3,
        num_epochs=2,
        batch_size=4,
        transforms=[AddNoise()],
    )
    assert xs(make_noisy(seed=3)) == xs(arrays)


@pytest.mark.parametrize("consumed", range(5))
def test_random_transforms_go_on_where_they_stopped(consumed):
    ds = make_noisy(seed=1, shuffle=True)
    expected = xs(ds)
    iterator, again = iter(ds), iter(make_noisy(seed=1, shuffle=True))
    for _ in range(consumed):
        next(iterator)
    again.set_state(iterator.get_state())
    assert xs(again) == expected[consumed:]


@pytest.mark.parametrize("shuffle", [False, True])
def test_sampler_names_the_records_of_each_batch(shuffle):
    ds = kd.data.InMemoryPipeline(
        loader=lambda: {"x": np.arange(5)},
        num_epochs=2,
        batch_size=2,
        shuffle=shuffle,
        seed=7,
    )
    batches = [batch["x"].tolist() for batch in ds.iter()]
    assert [indices.tolist() for indices in ds.sampler] == batches
    assert len(ds.sampler) == len(batches) == 4


def test_endless_sampler_has_no_length():
    ds = kd.data.InMemoryPipeline(loader=lambda: {"x": np.arange(5)}, batch_size=2)
    assert next(iter(ds.sampler)).tolist() == [0, 1]
    with pytest.raises(TypeError, match="num_epochs"):
        len(ds.sampler)
