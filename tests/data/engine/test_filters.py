"""Streams in which records are missing."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd


@dataclasses.dataclass(frozen=True)
class Below(kd.data.FilterTransform):
    limit: int

    def filter(self, element):
        return element["x"] < self.limit


def make_ds(count, transforms, **kwargs):
    kwargs = {"shuffle": False, "num_epochs": 1, "prefetch_batches": 0} | kwargs
    records = [{"x": i} for i in range(count)]
    return kd.data.py.DataSource(records, transforms=transforms, **kwargs)


def xs(batches):
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def even_or_none(record):
    return record if record["x"] % 2 == 0 else None


@pytest.mark.parametrize(
    "remainder, expected",
    [
        ("drop", [[0, 2, 4], [6, 8, 10]]),
        ("keep", [[0, 2, 4], [6, 8, 10], [12]]),
        ("pad", [[0, 2, 4], [6, 8, 10], [12, 0, 0]]),
    ],
)
def test_batches_are_made_of_what_is_left(remainder, expected):
    class Even(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 0

    for transform in (Even(), even_or_none):
        ds = make_ds(14, [transform], batch_size=3, batch_drop_remainder=remainder)
        assert xs(ds) == expected


def test_single_records_are_filtered_too():
    ds = make_ds(20, [Below(3)])
    assert list(ds) == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert ds.element_spec == {"x": 0}


def test_a_filter_on_columns_is_that_on_records():
    data = {"x": np.arange(50)}
    kwargs = {"shuffle": True, "seed": 3, "num_epochs": 2, "batch_size": 4}
    columns = kd.data.py.Arrays(data, transforms=[Below(17)], **kwargs)
    records = make_ds(50, [Below(17)], **kwargs)
    assert xs(columns) == xs(records)
    assert len(xs(columns)) == 34 // 4


def test_a_mask_marks_the_filler_of_filtered_data():
    ds = make_ds(
        9,
        [Below(4)],
        batch_size=3,
        batch_drop_remainder="pad",
        batch_mask_key="mask",
    )
    assert [b["mask"].tolist() for b in ds] == [[True] * 3, [True, False, False]]


def test_the_length_of_filtered_data_is_unknown():
    with pytest.raises(TypeError, match=r"unknown.*Below\(limit=3\)"):
        len(make_ds(9, [Below(3)], batch_size=2))


def test_endless_data_of_which_nothing_passes_is_an_error():
    for transforms in ([Below(0)], [lambda r: None]):
        ds = make_ds(9, transforms, batch_size=2, num_epochs=None)
        with pytest.raises(RuntimeError, match=r"whole epoch.*9 records"):
            next(iter(ds))


def test_finite_data_of_which_nothing_passes_just_ends():
    assert list(make_ds(9, [Below(0)], batch_size=2)) == []


def test_the_spec_of_data_of_which_nothing_passes_names_the_filter():
    with pytest.raises(ValueError, match=r"no records that pass.*Below\(limit=0\)"):
        _ = make_ds(9, [Below(0)], batch_size=2).element_spec


def test_the_spec_of_data_of_which_every_record_is_none_says_so():
    ds = make_ds(9, [lambda r: None], batch_size=2)
    with pytest.raises(ValueError, match="no records left: each of its 9 is None"):
        _ = ds.element_spec


def test_the_spec_comes_from_the_first_record_that_passes():
    class Late(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] > 5

    ds = make_ds(9, [Late(), lambda r: {"y": np.zeros(r["x"])}], batch_size=1)
    assert ds.element_spec["y"].shape == (1, 6)


@given(
    size=st.integers(1, 40),
    limit=st.integers(0, 40),
    batch_size=st.one_of(st.none(), st.integers(1, 7)),
    consumed=st.integers(0, 6),
    remainder=st.sampled_from(["drop", "keep", "pad"]),
    is_declared=st.booleans(),
)
def test_filtered_data_continues_where_it_stopped(
    size, limit, batch_size, consumed, remainder, is_declared
):
    def below_or_none(record):
        return record if record["x"] < limit else None

    transform = Below(limit) if is_declared else below_or_none
    ds = make_ds(
        size,
        [transform],
        shuffle=True,
        seed=1,
        num_epochs=2,
        batch_size=batch_size,
        batch_drop_remainder=remainder,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = xs(ds)
        iterator, again = iter(ds), iter(ds)
    for _ in range(min(consumed, len(expected))):
        next(iterator)
    again.set_state(iterator.get_state())
    assert xs(again) == expected[consumed:]


def test_processes_share_filtered_endless_data(as_process):
    ds = make_ds(20, [Below(10)], num_epochs=None, batch_size=4)
    seen = []
    for index in range(2):
        as_process(index, 2)
        iterator = iter(ds)
        seen += [x for _ in range(2) for x in next(iterator)["x"].tolist()]
        assert iterator.get_state()["process_count"] == 2
    assert sorted(seen)[:8] == list(range(8))


def test_processes_cannot_share_filtered_data_that_ends(as_process):
    as_process(0, 2)
    with pytest.raises(ValueError, match=r"2 processes.*num_epochs=None"):
        iter(make_ds(20, [Below(10)], batch_size=4))


def test_a_map_that_returns_none_on_one_process_is_an_error(as_process):
    as_process(0, 2)
    ds = make_ds(20, [even_or_none], batch_size=4)
    with pytest.raises(ValueError, match=r"None for record 1 of.*FilterTransform"):
        next(iter(ds))


def test_another_number_of_processes_cannot_restore_a_filtered_position(as_process):
    ds = make_ds(20, [Below(10)], num_epochs=None, batch_size=4)
    as_process(0, 2)
    iterator = iter(ds)
    next(iterator)
    state = iterator.get_state()
    as_process(0, 1)
    with pytest.raises(ValueError, match=r"2 processes.*by 1.*dense"):
        iter(ds).set_state(state)


def test_in_memory_data_is_filtered_epoch_by_epoch():
    ds = kd.data.InMemoryPipeline(
        loader=lambda: {"x": np.arange(8)},
        num_epochs=2,
        batch_size=2,
        drop_remainder=False,
        transforms=[Below(5)],
    )
    assert xs(ds) == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]


# ----------------------------------------------------------------------------
# Bad records
# ----------------------------------------------------------------------------


class Damaged:
    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError("unreadable")
        return {"x": index}


def test_bad_records_are_left_out_and_logged_up_to_a_limit(caplog):
    ds = kd.data.py.DataSource(
        Damaged({2, 5}), shuffle=False, num_epochs=1, batch_size=4, max_bad_records=2
    )
    assert xs(ds) == [[0, 1, 3, 4], [6, 7, 8, 9]]
    assert "record 2 of DataSource(Damaged)" in caplog.text
    assert "OSError: unreadable" in caplog.text


def test_one_bad_record_too_many_is_an_error():
    ds = kd.data.py.DataSource(
        Damaged({2, 5}), shuffle=False, num_epochs=1, batch_size=4, max_bad_records=1
    )
    with pytest.raises(ValueError, match=r"2 bad records.*max_bad_records=1.*record 5"):
        list(ds)


def test_records_that_a_transform_cannot_handle_may_be_left_out():
    def invert(record):
        return {"x": 1 // record["x"]}

    ds = make_ds(4, [invert], max_bad_records=1)
    assert list(ds) == [{"x": 1}, {"x": 0}, {"x": 0}]
