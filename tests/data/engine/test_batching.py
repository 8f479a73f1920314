"""How records become batches: counts, remainders, epochs, and what can go wrong."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd
from kauldron.batch_mask import BATCH_MASK, UnmaskableError
from kauldron.data.engine import keys
from kauldron.data.engine.shuffles import shuffle_indices


def numbers(count):
    return [{"x": i} for i in range(count)]


def make_ds(records, **kwargs):
    kwargs = {"shuffle": False, "num_epochs": 1, "prefetch_batches": 0} | kwargs
    return kd.data.py.DataSource(records, **kwargs)


def xs(batches):
    return [np.asarray(batch["x"]).tolist() for batch in batches]


# ----------------------------------------------------------------------------
# Order
# ----------------------------------------------------------------------------


def expected_order(size, seed, epoch):
    root = keys.fold_in_str(keys.prng_key(seed), "kmix")
    shuffle_seed = keys.bits(keys.fold_in_str(root, "shuffle"))
    return shuffle_indices(np.arange(size), size=size, seed=shuffle_seed + epoch)


@pytest.mark.parametrize("size", [1, 2, 1000, 65_536, 65_537, 70_000])
def test_shuffled_order_is_the_documented_one(size):
    data = {"x": np.arange(size)}
    ds = kd.data.py.Arrays(data, shuffle=True, seed=5, batch_size=size, num_epochs=2)
    for epoch, batch in enumerate(ds):
        np.testing.assert_array_equal(batch["x"], expected_order(size, 5, epoch))
        assert len(np.unique(batch["x"])) == size


def test_equal_pipelines_give_equal_streams_and_so_does_iterating_again():
    def stream(seed):
        return make_ds(numbers(20), shuffle=True, seed=seed, batch_size=5)

    ds = stream(1)
    assert xs(ds) == xs(stream(1)) == xs(ds)
    assert xs(ds) != xs(stream(2))


def test_epochs_are_permutations_that_differ():
    ds = make_ds(numbers(20), shuffle=True, batch_size=20, num_epochs=3)
    epochs = xs(ds)
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_transforms_leave_the_order_alone():
    plain = make_ds(numbers(20), shuffle=True, batch_size=5)
    ds = dataclasses.replace(plain, transforms=[lambda r: {**r, "y": 0}])
    assert xs(ds) == xs(plain)


def test_negative_and_numpy_seeds_are_accepted():
    a = make_ds(numbers(20), shuffle=True, seed=-1)
    b = make_ds(numbers(20), shuffle=True, seed=np.int64(2**32 - 1))
    assert xs(a) == xs(b)


# ----------------------------------------------------------------------------
# Batches and remainders
# ----------------------------------------------------------------------------


def test_a_batch_may_span_two_epochs():
    ds = make_ds(numbers(5), batch_size=3, num_epochs=2)
    assert xs(ds) == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    assert len(ds) == 3


@pytest.mark.parametrize(
    "remainder, expected",
    [
        (True, [[0, 1, 2], [3, 4, 5]]),
        ("drop", [[0, 1, 2], [3, 4, 5]]),
        ("DROP", [[0, 1, 2], [3, 4, 5]]),
        (False, [[0, 1, 2], [3, 4, 5], [6]]),
        ("keep", [[0, 1, 2], [3, 4, 5], [6]]),
        ("pad", [[0, 1, 2], [3, 4, 5], [6, 0, 0]]),
        (kd.data.py.DropRemainder.PAD, [[0, 1, 2], [3, 4, 5], [6, 0, 0]]),
    ],
)
def test_the_remainder_is_dropped_kept_or_padded(remainder, expected):
    ds = make_ds(numbers(7), batch_size=3, batch_drop_remainder=remainder)
    assert xs(ds) == expected
    assert len(ds) == len(expected)
    assert isinstance(ds.batch_drop_remainder, kd.data.py.DropRemainder)


def test_an_unknown_word_for_the_remainder_lists_the_legal_ones():
    with pytest.raises(
        ValueError, match=r"'x' is not a valid DropRemainder.*'drop'.*'pad'"
    ):
        make_ds(numbers(1), batch_drop_remainder="x")


def test_the_mask_is_true_for_real_records():
    ds = make_ds(
        numbers(5), batch_size=3, batch_drop_remainder="pad", batch_mask_key="mask"
    )
    masks = [batch["mask"] for batch in ds]
    assert [mask.tolist() for mask in masks] == [[True] * 3, [True, True, False]]
    assert masks[0].dtype == bool
    assert ds.element_spec["mask"] == kd.data.ArraySpec((3,), bool)


def test_a_padded_batch_carries_the_mask_that_metrics_find():
    ds = make_ds(numbers(5), batch_size=3, batch_drop_remainder="pad")
    masks = [batch[BATCH_MASK].tolist() for batch in ds]
    assert masks == [[True] * 3, [True, True, False]]
    assert ds.element_spec[BATCH_MASK] == kd.data.ArraySpec((3,), bool)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_drop_remainder": "pad", "batch_size": 4},  # divides the records
        {"batch_drop_remainder": "pad", "batch_size": 3, "num_epochs": None},
        {"batch_drop_remainder": "keep", "batch_size": 3},
        {"batch_drop_remainder": "drop", "batch_size": 3},
        {"batch_drop_remainder": "pad", "batch_size": None},
    ],
)
def test_data_that_is_never_padded_has_no_mask(changes):
    ds = make_ds(numbers(8), **changes)
    assert sorted(ds.element_spec) == sorted(next(iter(ds))) == ["x"]


def test_functions_of_batches_neither_see_nor_lose_the_mask():
    def double(batch):
        assert sorted(batch) == ["x"]
        return {"y": 2 * batch["x"]}

    ds = make_ds(numbers(5), batch_size=3, batch_drop_remainder="pad").map(double)
    last = list(ds)[-1]
    assert last["y"].tolist() == [6, 8, 0]
    assert last[BATCH_MASK].tolist() == [True, True, False]
    with pytest.raises(UnmaskableError, match="return a dict"):
        list(ds.map(lambda batch: batch["y"]))


def test_padded_batches_that_are_no_dicts_are_warned_about():
    ds = make_ds(list(range(5)), batch_size=3, batch_drop_remainder="pad")
    with pytest.warns(UserWarning, match="make the records dicts"):
        assert list(ds)[-1].tolist() == [3, 4, 0]


@pytest.mark.parametrize("own", ["drop", "keep", "pad"])
@pytest.mark.parametrize("other", list(kd.data.py.DropRemainder))
def test_data_with_another_remainder(own, other):
    ds = make_ds(numbers(7), batch_size=3, batch_drop_remainder=own)
    expected = make_ds(numbers(7), batch_size=3, batch_drop_remainder=other)
    changed = ds.with_remainder(other)
    assert xs(changed) == xs(expected) and len(changed) == len(expected)
    assert changed.element_spec == expected.element_spec
    assert xs(ds.take(2).with_remainder(other)) == xs(expected)[:2]


def test_a_mask_that_is_already_a_field_is_refused():
    ds = make_ds(numbers(5), batch_size=3, batch_mask_key="x")
    with pytest.raises(KeyError, match="batch_mask_key='x'"):
        list(ds)


def test_a_mask_without_batches_is_refused():
    with pytest.raises(ValueError, match=r"batch_mask_key='m'.*batch_size"):
        make_ds(numbers(5), batch_mask_key="m")


def test_padding_empties_strings():
    records = [{"s": "abc"}] * 4
    ds = make_ds(records, batch_size=3, batch_drop_remainder="pad")
    assert list(ds)[1]["s"].tolist() == ["abc", "", ""]


@given(
    size=st.integers(0, 30),
    batch_size=st.integers(1, 8),
    epochs=st.integers(1, 3),
    remainder=st.sampled_from(["drop", "keep", "pad"]),
)
def test_length_is_the_number_of_batches(size, batch_size, epochs, remainder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = make_ds(
            numbers(size),
            batch_size=batch_size,
            num_epochs=epochs,
            batch_drop_remainder=remainder,
            shuffle=True,
        )
        batches = xs(ds)
    assert len(ds) == len(batches)
    if remainder == "keep":
        seen = sorted(x for batch in batches for x in batch)
        assert seen == sorted(list(range(size)) * epochs)


@pytest.mark.parametrize("batch_size", [None, 0])
def test_without_batches_records_come_one_by_one(batch_size):
    ds = make_ds(
        [{"x": i, "s": "t", "n": None} for i in range(3)], batch_size=batch_size
    )
    assert list(ds) == [{"x": i, "s": "t", "n": None} for i in range(3)]
    assert len(ds) == 3
    assert ds.host_batch_size is None
    assert ds.element_spec == {"x": 0, "s": "t", "n": None}


@pytest.mark.parametrize(
    "record, batch",
    [
        (5, np.array([5, 5])),
        ("a", np.array(["a", "a"])),
        ((1, {"b": 2.5}), (np.array([1, 1]), {"b": np.array([2.5, 2.5])})),
        ([1, 2], [np.array([1, 1]), np.array([2, 2])]),
    ],
)
def test_any_tree_is_a_record(record, batch):
    assert list(make_ds([record])) == [record]
    (found,) = make_ds([record, record], batch_size=2)
    np.testing.assert_equal(found, batch)


# ----------------------------------------------------------------------------
# Too little data
# ----------------------------------------------------------------------------


def test_an_empty_finite_source_yields_nothing():
    ds = make_ds([], batch_size=2)
    assert len(ds) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(ds) == []


def test_an_empty_endless_source_is_refused():
    with pytest.raises(ValueError, match="no records"):
        iter(make_ds([], batch_size=2, num_epochs=None))


def test_the_spec_of_an_empty_source_names_the_source():
    with pytest.raises(ValueError, match=r"DataSource\(list\) has no records"):
        _ = make_ds([], batch_size=2).element_spec


def test_fewer_records_than_a_batch_are_repeated_without_end():
    ds = make_ds(numbers(2), batch_size=5, num_epochs=None)
    assert next(iter(ds))["x"].tolist() == [0, 1, 0, 1, 0]


def test_fewer_records_than_a_finite_batch_warn_and_yield_none():
    ds = make_ds(numbers(2), batch_size=5)
    with pytest.warns(UserWarning, match=r"2 records.*batch of 5.*'pad'"):
        assert list(ds) == []
    assert ds.element_spec["x"].shape == (5,)


def test_the_spec_of_a_kept_small_batch_has_its_size():
    ds = make_ds(numbers(2), batch_size=5, batch_drop_remainder="keep")
    assert ds.element_spec["x"].shape == (2,)
    assert xs(ds) == [[0, 1]]


# ----------------------------------------------------------------------------
# Records that do not fit
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"x": np.zeros(3)}, ["'x'", "(2,)", "(3,)"]),
        ({"y": np.zeros(2)}, ["['x']", "['y']"]),
        ({"x": np.zeros(2), "y": 1}, ["extra: ['y']"]),
        ({"x": "text"}, ["'x'", "float64[2]", "<U4"]),
    ],
)
def test_records_that_do_not_fit_are_named_by_their_index_in_the_source(bad, words):
    records = [{"x": np.zeros(2)} for _ in range(6)]
    records[4] = bad
    ds = make_ds(records, batch_size=3)
    iterator = iter(ds)
    next(iterator)
    with pytest.raises(ValueError) as info:
        next(iterator)
    for word in [
        *words,
        "record 3 of DataSource(list)",
        "record 4 of DataSource(list)",
    ]:
        assert word in str(info.value)


def test_a_transform_that_changes_shapes_between_records_is_reported_with_both():
    ds = make_ds(
        numbers(4), batch_size=4, transforms=[lambda r: {"x": np.zeros(r["x"])}]
    )
    with pytest.raises(ValueError, match=r"'x'.*\(0,\).*record 0.*\(1,\).*record 1"):
        list(ds)


def test_strings_batch_to_string_arrays_and_are_objects_in_the_spec():
    ds = make_ds([{"s": "a"}, {"s": "bcd"}], batch_size=2)
    (batch,) = ds
    assert batch["s"].dtype == np.dtype("<U3")
    assert ds.element_spec["s"] == kd.data.ArraySpec((2,), object)


# ----------------------------------------------------------------------------
# Random access
# ----------------------------------------------------------------------------


def test_batches_by_number_and_by_slice():
    ds = make_ds(numbers(10), shuffle=True, batch_size=3)
    batches = xs(ds)
    assert xs([ds[1]]) == [batches[1]]
    assert xs([ds[-1]]) == [batches[-1]]
    assert xs(ds[:2]) == batches[:2]
    assert xs(ds[::-1]) == batches[::-1]


@pytest.mark.parametrize("index", [3, -4])
def test_a_number_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError, match="3 batches"):
        make_ds(numbers(10), batch_size=3)[index]


def test_endless_data_has_every_number_but_no_end():
    ds = make_ds(numbers(10), batch_size=3, num_epochs=None)
    assert xs([ds[100]]) == [[0, 1, 2]]
    assert len(ds[5:8]) == 3
    with pytest.raises(IndexError, match="no end"):
        ds[-1]
    with pytest.raises(ValueError, match="endless"):
        ds[5:]


def test_filtered_data_has_no_random_access():
    class Even(kd.data.FilterTransform):
        def filter(self, element):
            return element["x"] % 2 == 0

    with pytest.raises(TypeError, match=r"random access.*Even"):
        make_ds(numbers(10), batch_size=3, transforms=[Even()])[0]


# ----------------------------------------------------------------------------
# The user's data is safe
# ----------------------------------------------------------------------------


def overwrite(record):
    record["x"][...] = 7
    record["new"] = 1
    return record


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("kind", ["list", "columns"])
def test_a_transform_that_writes_into_its_record_does_not_harm_the_source(
    kind, batch_size
):
    array = np.zeros((4, 3))
    if kind == "list":
        records = [{"x": row} for row in array]
        ds = make_ds(records, batch_size=batch_size, transforms=[overwrite])
    else:
        ds = kd.data.py.Arrays(
            {"x": array},
            shuffle=False,
            num_epochs=1,
            batch_size=batch_size,
            transforms=[overwrite],
        )
    for batch in ds:
        assert (batch["x"] == 7).all()
    assert (array == 0).all()
    if kind == "list":
        assert list(records[0]) == ["x"]


def test_a_consumer_that_writes_into_its_batch_does_not_harm_the_source():
    array = np.zeros((4, 3))

    class Views:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return {"x": array[index]}

        def get_batch(self, indices):
            return {"x": array[indices[0] : indices[-1] + 1]}

    for batch_size in (None, 2):
        for batch in make_ds(Views(), batch_size=batch_size):
            batch["x"][...] = 1
    assert (array == 0).all()
