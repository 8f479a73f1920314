"""Histograms, and how many values they keep."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import summaries


def test_values_of_any_shape_are_flattened_and_collected():
    metric = summaries.HistogramSummary(num_buckets=7)
    first, second = np.arange(6.0).reshape(2, 3), np.arange(6.0, 8.0)
    merged = metric.get_state(tensor=first).merge(metric.get_state(tensor=second))
    value = merged.compute()
    assert isinstance(value, summaries.Histogram)
    assert value.num_buckets == 7
    np.testing.assert_array_equal(value.tensor, np.arange(8))


def test_default_number_of_buckets():
    assert summaries.HistogramSummary()(tensor=np.ones(2)).num_buckets == 30


@pytest.mark.parametrize("state", ["empty", "no values"])
def test_nothing_to_show_is_refused_naming_the_metric(state):
    metric = summaries.HistogramSummary(tensor="params.w")
    state = metric.empty() if state == "empty" else metric.get_state(tensor=np.ones(0))
    with pytest.raises(ValueError, match=r"HistogramSummary.*params\.w"):
        state.compute()


def test_merge_inside_jit_is_refused():
    state = summaries.HistogramSummary().get_state(tensor=np.ones(3))
    with pytest.raises(RuntimeError, match="cannot be jit-compiled"):
        jax.jit(lambda a, b: a.merge(b))(state, state)


def test_large_tensor_is_thinned_inside_jit():
    metric = summaries.HistogramSummary(max_values=100)
    state = jax.jit(metric.get_state)(tensor=np.arange(1000.0))
    values = state.compute().tensor
    assert 50 <= len(values) <= 100
    assert set(np.diff(values)) == {16.0}


def test_all_values_are_kept_without_limit():
    metric = summaries.HistogramSummary(max_values=None)
    state = metric.get_state(tensor=np.arange(1000))
    assert len(state.merge(state).merge(state).compute().tensor) == 3000


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    limit=st.integers(1, 100),
)
def test_kept_values_are_evenly_spaced_over_all_batches(sizes, limit):
    metric = summaries.HistogramSummary(max_values=limit)
    state, seen = metric.empty(), 0
    for size in sizes:
        values = np.arange(seen, seen + size)
        state = state.merge(metric.State(values=values, num_seen=size, num_kept=size))
        seen += size
    values = state.finalize().values
    assert len(values) == state.num_kept <= limit
    assert state.num_seen == seen
    assert len(values) >= min(seen, limit) // 4
    if len(values) > 1:
        gaps = np.diff(values)
        assert gaps.max() <= 2 * state.stride
        assert gaps.min() >= 1


def test_mean_of_a_long_stream_is_kept():
    metric = summaries.HistogramSummary(max_values=1000)
    rng = np.random.default_rng(0)
    state = metric.empty()
    for i in range(100):
        tensor = jax.device_put(rng.normal(i, 1, 150).astype(np.float32))
        state = state.merge(metric.get_state(tensor=tensor))
        assert state.num_kept <= 1000
    values = state.compute().tensor
    assert values.mean() == pytest.approx(49.5, abs=2)
    assert len(values) >= 250


@pytest.mark.parametrize("option", [{"num_buckets": 0}, {"max_values": 0}])
def test_options_below_one_are_refused(option):
    with pytest.raises(ValueError, match="at least 1"):
        summaries.HistogramSummary(**option)
