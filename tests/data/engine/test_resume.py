"""Sharing among processes, and going on where one stopped."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kauldron import kd
from kauldron.data.engine.batches import Share


def make_ds(kind, size, **kwargs):
    kwargs = {"shuffle": True, "seed": 4, "prefetch_batches": 0} | kwargs
    if kind == "arrays":
        return kd.data.py.Arrays({"x": np.arange(size)}, **kwargs)
    if kind == "records":
        return kd.data.py.DataSource([{"x": i} for i in range(size)], **kwargs)
    half = kd.data.py.Arrays({"x": np.arange(size)}, shuffle=True)
    return kd.data.py.Mix([half, half], **kwargs)


def stream_of(ds, share, state=None, limit=None):
    """What one process sees."""
    iterator = ds._iterate(ds._make_job(share))
    if state is not None:
        iterator.set_state(state)
    limit = 10_000 if limit is None else limit
    return [batch["x"].tolist() for _, batch in zip(range(limit), iterator)]


def consume(ds, share, count):
    iterator = ds._iterate(ds._make_job(share))
    for _ in range(count):
        next(iterator)
    return json.loads(json.dumps(iterator.get_state()))


FEWER = settings(max_examples=30)  # each makes many batches
KINDS = st.sampled_from(["arrays", "records", "mix"])


@given(
    kind=KINDS,
    size=st.integers(1, 20),
    per_process=st.integers(1, 4),
    count=st.sampled_from([1, 2, 4]),
    remainder=st.sampled_from(["drop", "pad"]),
)
@FEWER
def test_the_parts_of_all_processes_make_up_the_same_global_batches(
    kind, size, per_process, count, remainder
):
    batch_size = per_process * count
    ds = make_ds(
        kind,
        size,
        num_epochs=2,
        batch_size=batch_size,
        batch_drop_remainder=remainder,
        batch_mask_key="mask",
    )
    whole = stream_of(ds, Share())
    parts = [stream_of(ds, Share(index=p, count=count)) for p in range(count)]
    assert len({len(part) for part in parts}) == 1
    for batch, *pieces in zip(whole, *parts, strict=True):
        assert [x for piece in pieces for x in piece] == batch


@given(
    kind=KINDS,
    size=st.integers(1, 16),
    consumed=st.integers(0, 8),
    batch_size=st.sampled_from([2, 4, 6]),
    remainder=st.sampled_from(["drop", "keep", "pad"]),
)
@FEWER
def test_a_restored_iterator_goes_on_with_the_next_batch(
    kind, size, consumed, batch_size, remainder
):
    ds = make_ds(
        kind,
        size,
        num_epochs=3,
        batch_size=batch_size,
        batch_drop_remainder=remainder,
    )
    expected = stream_of(ds, Share())
    assume(consumed <= len(expected))
    state = consume(ds, Share(), consumed)
    assert stream_of(ds, Share(), state) == expected[consumed:]


@given(
    kind=KINDS,
    size=st.integers(1, 20),
    consumed=st.integers(0, 3),
    old_count=st.sampled_from([1, 2, 4]),
    new_count=st.sampled_from([1, 2, 4]),
    new_batch_size=st.sampled_from([4, 8, 12]),
)
@FEWER
def test_another_number_of_processes_and_another_batch_size_go_on_in_the_same_place(
    kind, size, consumed, old_count, new_count, new_batch_size
):
    old = make_ds(kind, size, batch_size=8)
    state = consume(old, Share(index=old_count - 1, count=old_count), consumed)
    new = dataclasses.replace(old, batch_size=new_batch_size)
    single = dataclasses.replace(old, batch_size=1)
    parts = [
        stream_of(new, Share(index=p, count=new_count), state, limit=2)
        for p in range(new_count)
    ]
    seen = [x for batch in zip(*parts) for piece in batch for x in piece]
    records = stream_of(single, Share(), limit=8 * consumed + 2 * new_batch_size)
    assert seen == [x for batch in records[8 * consumed :] for x in batch]


@given(
    kind=KINDS,
    size=st.integers(1, 12),
    starts=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 3)), max_size=4
    ),
)
@FEWER
def test_stopped_any_number_of_times_in_any_world_the_order_stays(kind, size, starts):
    """Each start has a number of processes, and batches until it is stopped."""
    ds = make_ds(kind, size, batch_size=4)
    state, seen = None, []
    for count, batches in starts:
        iterators = [
            ds._iterate(ds._make_job(Share(index=p, count=count))) for p in range(count)
        ]
        for iterator in iterators:
            if state is not None:
                iterator.set_state(state)
        for _ in range(batches):
            parts = [next(iterator)["x"].tolist() for iterator in iterators]
            seen.append([x for part in parts for x in part])
        states = [json.loads(json.dumps(i.get_state())) for i in iterators]
        state = states[-1]
    assert seen == stream_of(ds, Share(), limit=len(seen))


@given(count=st.sampled_from([1, 2, 3]), size=st.integers(1, 20))
@FEWER
def test_single_records_are_dealt_out_in_turn(count, size):
    ds = make_ds("records", size, num_epochs=2, shuffle=True)
    whole = [r["x"] for r in ds]
    parts = [
        [r["x"] for r in ds._iterate(ds._make_job(Share(index=p, count=count)))]
        for p in range(count)
    ]
    assert len({len(part) for part in parts}) == 1
    dealt = [x for row in zip(*parts) for x in row]
    assert dealt == whole[: len(whole) // count * count]


def test_without_sharding_every_process_gets_everything():
    ds = make_ds("arrays", 8, num_epochs=1, batch_size=4, shard_by_process=False)
    parts = [stream_of(ds, Share(index=p, count=2)) for p in range(2)]
    assert parts[0] == parts[1]
    assert sorted(x for batch in parts[0] for x in batch) == list(range(8))
    assert [len(batch) for batch in parts[0]] == [2, 2, 2, 2]


def test_processes_are_read_when_the_iterator_is_made(as_process):
    ds = make_ds("arrays", 8, num_epochs=1, batch_size=4, shuffle=False)
    as_process(1, 2)
    assert ds.host_batch_size == 2
    assert [b["x"].tolist() for b in ds] == [[2, 3], [6, 7]]
    assert ds.element_spec["x"].shape == (2,)
    as_process(0, 2)
    assert [b["x"].tolist() for b in ds] == [[0, 1], [4, 5]]


def test_a_batch_size_that_does_not_divide_is_an_error_with_both_numbers(as_process):
    as_process(0, 4)
    ds = make_ds("arrays", 20, batch_size=6)
    for fails in (
        lambda: iter(ds),
        lambda: ds.host_batch_size,
        lambda: ds.element_spec,
    ):
        with pytest.raises(ValueError, match=r"batch_size=6.*4 processes"):
            fails()
    with pytest.raises(ValueError, match=r"batch_size=3.*4 processes"):
        kd.data.BatchSize(3)
    assert kd.data.BatchSize(8).per_process == 2


def test_a_kept_remainder_cannot_be_shared(as_process):
    as_process(0, 2)
    ds = make_ds("arrays", 5, num_epochs=1, batch_size=4, batch_drop_remainder="keep")
    with pytest.raises(ValueError, match=r"5 records.*2 processes.*'pad'"):
        iter(ds)


def test_the_state_is_json_of_constant_form():
    ds = make_ds("arrays", 10, batch_size=4)
    iterator = iter(ds)
    states = []
    for _ in range(3):
        states.append(json.loads(json.dumps(iterator.get_state())))
        next(iterator)
    assert [s["next_index"] for s in states] == [0, 4, 8]
    assert states[1] == {
        "next_index": 4,
        "global_index": 4,
        "process_count": 1,
        "batch_size": 4,
        "num_records": 10,
        "version": 1,
    }


def test_a_state_with_nothing_but_a_next_index_is_accepted():
    ds = make_ds("arrays", 10, num_epochs=1, batch_size=2)
    expected = stream_of(ds, Share())
    assert stream_of(ds, Share(), {"next_index": 4}) == expected[2:]


def test_a_position_beyond_the_data_is_an_error_with_both_numbers():
    ds = make_ds("arrays", 10, num_epochs=1, batch_size=2)
    with pytest.raises(IndexError, match=r"12 records.*only 10 "):
        iter(ds).set_state({"next_index": 12})


def test_a_changed_number_of_records_is_logged(caplog):
    state = consume(make_ds("arrays", 10, batch_size=2), Share(), 1)
    iter(make_ds("arrays", 12, batch_size=2)).set_state(state)
    assert "has 12 records now, but had 10" in caplog.text


@pytest.mark.parametrize(
    "state, words",
    [
        ({"iterators_in_use_states": []}, "grain's worker processes"),
        ({}, "'next_index'"),
        ({"next_index": "5"}, "'next_index'"),
    ],
)
def test_a_state_of_something_else_is_refused(state, words):
    with pytest.raises(ValueError, match=words):
        iter(make_ds("arrays", 10, batch_size=2)).set_state(state)


def test_transforms_may_change_between_save_and_restore():
    ds = make_ds("records", 10, num_epochs=1, batch_size=2)
    state = consume(ds, Share(), 2)
    changed = dataclasses.replace(ds, transforms=[lambda r: {"x": r["x"] + 100}])
    expected = [[x + 100 for x in batch] for batch in stream_of(ds, Share())[2:]]
    assert stream_of(changed, Share(), state) == expected


@given(
    kind=st.sampled_from(["arrays", "records", "mix"]),
    size=st.integers(1, 20),
    batch_size=st.integers(1, 7),
    num_epochs=st.integers(1, 3),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**31),
    remainder=st.sampled_from(["keep", "drop"]),
    consumed=st.integers(0, 30),
    before=st.integers(1, 3),
    after=st.integers(1, 3),
)
def test_any_position_is_gone_on_from_with_any_number_of_processes(
    kind, size, batch_size, consumed, before, after, remainder, **options
):
    ds = make_ds(
        kind, size, batch_size=6 * batch_size, batch_drop_remainder=remainder, **options
    )
    whole = stream_of(ds, Share())
    consumed = min(consumed, len(whole))
    state = consume(ds, Share(index=0, count=before), consumed)
    parts = [stream_of(ds, Share(index=k, count=after), state) for k in range(after)]
    together = [
        sorted(itertools.chain(*batches)) for batches in zip(*parts, strict=True)
    ]
    assert together == [sorted(batch) for batch in whole[consumed:]]


@given(steps=st.lists(st.integers(0, 4), max_size=8))
def test_stacked_and_single_batches_can_be_taken_in_turn(steps):
    ds = make_ds("arrays", 23, num_epochs=2, batch_size=4, batch_drop_remainder="keep")
    expected = stream_of(ds, Share())
    iterator, seen = iter(ds), []
    for step in steps:
        try:
            if step:
                seen += iterator.next_batches(step)["x"].tolist()
            else:
                seen.append(next(iterator)["x"].tolist())
        except StopIteration:
            break
        assert seen == expected[: len(seen)]
        assert iterator.get_state()["global_index"] == sum(map(len, seen))


def test_stacked_batches_stop_before_a_smaller_one():
    ds = make_ds("arrays", 10, num_epochs=1, batch_size=4, batch_drop_remainder="keep")
    iterator = iter(ds)
    assert iterator.next_batches(5)["x"].shape == (2, 4)
    assert iterator.next_batches(5)["x"].shape == (1, 2)
    with pytest.raises(StopIteration):
        iterator.next_batches(5)


@pytest.mark.parametrize("prefetch_batches", [0, 3])
def test_stacked_batches_of_records_are_the_batches(prefetch_batches):
    ds = make_ds(
        "records", 20, num_epochs=1, batch_size=3, prefetch_batches=prefetch_batches
    )
    expected = stream_of(ds, Share())
    with iter(ds) as iterator:
        seen = [next(iterator)["x"].tolist(), *iterator.next_batches(3)["x"].tolist()]
        state = iterator.get_state()
    assert seen == expected[:4]
    assert stream_of(ds, Share(), state) == expected[4:]


@pytest.mark.parametrize("kind", ["arrays", "records"])
def test_stacked_batches_have_the_masks_of_the_batches(kind):
    ds = make_ds(
        kind,
        10,
        num_epochs=1,
        batch_size=4,
        batch_drop_remainder="pad",
        batch_mask_key="is_real",
    )
    expected = list(ds)
    stacked, last = iter(ds).next_batches(2), expected.pop()
    assert stacked.keys() == last.keys()
    for name, column in stacked.items():
        assert column.tolist() == [batch[name].tolist() for batch in expected]


def test_stacked_batches_may_have_empty_fields():
    columns = {"x": np.arange(6), "nothing": np.zeros((6, 0))}
    ds = kd.data.py.Arrays(
        columns, shuffle=False, seed=0, batch_size=2, prefetch_batches=0
    )
    batches = iter(ds).next_batches(3)
    assert batches["nothing"].shape == (3, 2, 0)


@pytest.mark.parametrize("remainder", ["keep", "pad"])
def test_stacked_batches_stop_where_an_epoch_ends_with_a_smaller_one(remainder):
    ds = kd.data.InMemoryPipeline(
        loader=lambda: {"x": np.arange(6)},
        batch_size=4,
        seed=0,
        drop_remainder=remainder,
    )
    expected = [batch["x"].tolist() for batch in ds.take(10)]
    iterator, seen = iter(ds), []
    while len(seen) < 10:  # 5 batches of 4 and 2 records in turn hold 4 times 4
        seen += iterator.next_batches(5)["x"].tolist()
    assert seen[:10] == expected
