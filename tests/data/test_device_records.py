import jax
import numpy as np
import pytest

from kauldron import kd

WITH_OPTIMIZATIONS = True  # devices compute as for users


def make_data():
    rng = np.random.default_rng(0)
    return {"image": rng.integers(0, 256, (50, 4, 4), np.uint8), "label": np.arange(50)}


def make_ds(**kwargs):
    kwargs = {
        "shuffle": True,
        "seed": 2,
        "batch_size": 8,
        "device_resident": True,
    } | kwargs
    return kd.data.py.Arrays(make_data(), **kwargs)


TO_UNIT = kd.data.ValueRange(key="image", vrange=(0, 1))


def assert_same_batches(ds, count=9):
    records = kd.data.DeviceRecords.of(ds)
    gather = jax.jit(records.gather)
    by_rows, by_batch = iter(ds), iter(ds)
    rows = records.rows(by_rows.next_positions(count))
    assert rows.dtype == np.int32
    for row in rows:
        batch = gather(records.columns, row)
        expected = next(by_batch)
        assert set(batch) == set(expected)
        for name, column in expected.items():
            np.testing.assert_array_equal(batch[name], column)
    assert by_rows.get_state() == by_batch.get_state()


@pytest.mark.parametrize(
    "transforms",
    [
        (),
        [TO_UNIT],
        [TO_UNIT, kd.data.py.SliceDataset(20), lambda r: {**r, "y": r["label"] * 2}],
    ],
)
def test_batches_gathered_on_the_device_are_those_of_the_iterator(transforms):
    assert_same_batches(make_ds(transforms=transforms))


def test_in_memory_pipelines_can_live_on_the_device():
    assert_same_batches(make_in_memory())


def test_a_mask_is_all_true():
    assert_same_batches(make_ds(batch_mask_key="mask"))


def make_in_memory(**kwargs):
    kwargs = {"shuffle": True, "seed": 1, "batch_size": 8} | kwargs
    return kd.data.InMemoryPipeline(loader=make_data, device_resident=True, **kwargs)


@pytest.mark.parametrize("make", [make_ds, make_in_memory])
@pytest.mark.parametrize("num_epochs", [None, 4])
@pytest.mark.parametrize("others_size", [8, 5, 7])
def test_positions_go_on_where_another_batch_size_was(make, num_epochs, others_size):
    other = iter(make(batch_size=others_size, num_epochs=num_epochs))
    for _ in range(3):
        next(other)
    ds = make(num_epochs=num_epochs)
    by_rows, by_batch = iter(ds), iter(ds)
    by_rows.set_state(other.get_state())
    by_batch.set_state(other.get_state())
    rows = kd.data.DeviceRecords.of(ds).rows(by_rows.next_positions(12))
    labels = [next(by_batch)["label"] for _ in range(12)]
    np.testing.assert_array_equal(rows, labels)
    assert by_rows.get_state() == by_batch.get_state()


def test_positions_end_with_the_full_batches():
    ds = make_ds(num_epochs=1, batch_drop_remainder="pad")
    iterator = iter(ds)
    assert iterator.next_positions(20).shape == (6, 8)
    with pytest.raises(StopIteration):
        iterator.next_positions(1)
    assert next(iterator)["label"].shape == (8,)


def test_positions_stop_where_an_epoch_ends_with_a_smaller_batch():
    ds = make_in_memory(drop_remainder="keep")  # 50 records in batches of 8
    iterator = iter(ds)
    assert iterator.next_positions(20).shape == (6, 8)
    with pytest.raises(StopIteration):
        iterator.next_positions(1)
    assert len(next(iterator)["label"]) == 2
    assert iterator.next_positions(20)[:, 0].tolist() == list(range(50, 98, 8))


def random_crop():
    return kd.data.py.RandomCrop(key="image", shape=(2, 2))


@pytest.mark.parametrize(
    "kwargs, words",
    [
        ({"transforms": [random_crop()]}, "RandomCrop.*does not do the same"),
        ({"batch_size": None}, "no batches"),
        ({"transforms": [lambda r: {"s": "text"}]}, "'s' is not an array"),
    ],
)
def test_what_cannot_live_on_the_device_says_why_if_asked_for(kwargs, words):
    with pytest.raises(ValueError, match=f"device_resident=True.*{words}"):
        kd.data.DeviceRecords.of(make_ds(**kwargs))
    assert kd.data.DeviceRecords.of(make_ds(**kwargs, device_resident="auto")) is None


def test_several_processes_keep_their_data_on_the_host(as_process):
    as_process(0, 2)
    assert kd.data.DeviceRecords.of(make_ds(device_resident="auto")) is None


def test_without_an_accelerator_auto_means_no():
    assert kd.data.DeviceRecords.of(make_ds(device_resident="auto")) is None
    assert kd.data.DeviceRecords.of(make_ds(device_resident=False)) is None
    records = kd.data.py.DataSource([{"x": 1}], shuffle=False, batch_size=1)
    assert kd.data.DeviceRecords.of(records) is None


def test_other_words_are_refused():
    with pytest.raises(ValueError, match=r"device_resident='yes'"):
        make_ds(device_resident="yes")
    with pytest.raises(ValueError, match=r"device_resident=1"):
        kd.data.InMemoryPipeline(loader=make_data, device_resident=1)


class SmallDevice:
    """As much of a device as the decision looks at."""

    platform = "gpu"

    def __init__(self, free):
        self._free = free

    def memory_stats(self):
        return {"bytes_limit": self._free + 100, "bytes_in_use": 100}


@pytest.mark.parametrize(
    "free, expected",
    [(10 * 50 * (16 * 4 + 8), "float32"), (10 * 50 * (16 + 8), "uint8"), (10, None)],
)
def test_records_are_transformed_beforehand_if_the_result_fits(
    monkeypatch, free, expected
):
    monkeypatch.setattr(jax, "local_devices", lambda: [SmallDevice(free)])
    ds = make_ds(transforms=[TO_UNIT], device_resident="auto")
    records = kd.data.DeviceRecords.of(ds)
    if expected is None:
        assert records is None
        return
    assert records.columns["image"].dtype == expected
    rows = records.rows(iter(ds).next_positions(1))[0]
    batch = jax.jit(records.gather)(records.columns, rows)
    np.testing.assert_allclose(batch["image"], next(iter(ds))["image"], atol=1e-6)


def test_functions_of_the_user_run_every_time_unless_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [SmallDevice(10**9)])
    ds = make_ds(transforms=[lambda r: r], device_resident="auto")
    assert kd.data.DeviceRecords.of(ds) is None
