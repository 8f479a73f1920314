import grain
import grain.experimental
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kauldron.data.engine import shuffles
from kauldron.data.engine.shuffles import EpochOrder, shuffle_indices

SEEDS = st.integers(0, 2**32 - 1)


def grain_shuffle(indices, size, seed):
    return [
        grain.experimental.index_shuffle(
            int(i), max_index=size - 1, seed=seed, rounds=4
        )
        for i in indices
    ]


@given(size=st.integers(1, 5000), seed=SEEDS)
def test_every_item_appears_exactly_once(size, seed):
    order = shuffle_indices(np.arange(size), size=size, seed=seed)
    assert sorted(order.tolist()) == list(range(size))


@pytest.mark.parametrize("size", [2**16 + 1, 2**18 + 1, 2**16, 70_000])
def test_every_item_appears_exactly_once_also_just_above_a_power_of_two(size):
    order = shuffle_indices(np.arange(size), size=size, seed=3)
    assert np.array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize(
    "size", [1, 2, 3, 255, 256, 257, 1000, 65_535, 65_536, 70_000, 10**6, 2**33 + 7]
)
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_the_order_is_that_of_grain(size, seed):
    indices = np.unique(np.linspace(0, size - 1, 150).astype(np.int64))
    ours = shuffle_indices(indices, size=size, seed=seed)
    assert ours.tolist() == grain_shuffle(indices, size, seed)


def test_grain_itself_repeats_a_record_where_we_do_not():
    size = 2**16 + 1
    theirs = grain_shuffle([0, size - 1, *range(1, 200)], size, seed=3)
    ours = shuffle_indices(np.arange(size), size=size, seed=3)
    assert len(set(ours.tolist())) == size
    assert theirs != ours[[0, size - 1, *range(1, 200)]].tolist()


@given(
    size=st.integers(20, 4000),
    start=st.integers(0, 20_000),
    count=st.integers(1, 30),
    step=st.integers(1, 5),
)
@settings(max_examples=30)
def test_a_span_of_positions_is_looked_up_like_single_ones(size, start, count, step):
    order = EpochOrder(size, seed=11)
    span = range(start, start + count * step, step)
    positions = np.array(span)
    epochs, indices = np.divmod(positions, size)
    permutations = {
        e: shuffle_indices(np.arange(size), size=size, seed=11 + e)
        for e in set(epochs.tolist())
    }
    expected = [int(permutations[e][i]) for e, i in zip(epochs.tolist(), indices)]
    assert (order.span(span) - epochs * size).tolist() == expected
    assert order(epochs, indices).tolist() == expected


def test_scattered_positions_of_a_large_epoch_bypass_the_cache(monkeypatch):
    monkeypatch.setattr(shuffles, "_CHUNK", 64)
    monkeypatch.setattr(shuffles, "_MAX_KEPT", 4)
    order = EpochOrder(100_000, seed=5)
    indices = np.arange(0, 100_000, 997)
    expected = shuffle_indices(indices, size=100_000, seed=6)
    assert np.array_equal(order(np.ones_like(indices), indices), expected)
    assert not order._chunk.cache_info().currsize
