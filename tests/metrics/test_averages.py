"""The weighted mean, exact over many batches."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kauldron.metrics import AverageState


@pytest.mark.parametrize(
    "values, expected",
    [
        (3.5, 3.5),
        (np.float32(2), 2.0),
        (np.array([True, False, False, True]), 0.5),
        (np.array([1, 2, 6], np.int32), 3.0),
        (np.array([1, 2, 6], np.uint8), 3.0),
        (np.array([0.5, 1.5], ml_dtypes.bfloat16), 1.0),
        (np.array([0.5, 1.5], np.float16), 1.0),
        (np.array([[1.0, 2.0], [3.0, 4.0]]), 2.5),
        (jnp.arange(5), 2.0),
    ],
)
def test_mean_of_any_real_values_is_a_float(values, expected):
    value = AverageState.from_values(values).compute()
    assert isinstance(value, float)
    assert value == expected


def test_empty_computes_zero():
    assert AverageState.empty().compute() == 0.0


def test_no_values_compute_zero():
    assert AverageState.from_values(np.zeros((0, 3))).compute() == 0.0


def test_mask_of_zeros_computes_zero():
    state = AverageState.from_values(np.ones(3), mask=np.zeros(3))
    assert state.compute() == 0.0


def test_mask_of_ones_changes_nothing():
    values = np.arange(6.0).reshape(2, 3)
    masked = AverageState.from_values(values, mask=np.ones((2, 1), bool))
    assert masked.compute() == AverageState.from_values(values).compute() == 2.5


@pytest.mark.parametrize("dtype", [bool, np.float32, np.int32])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_masked_out_values_are_ignored_even_if_not_finite(dtype, bad):
    values = np.array([1.0, bad, 3.0])
    mask = np.array([1, 0, 1], dtype)
    assert AverageState.from_values(values, mask=mask).compute() == 2.0


def test_float_masks_are_weights():
    state = AverageState.from_values(np.array([1.0, 5.0]), mask=np.array([3.0, 1.0]))
    assert state.compute() == 2.0
    assert state.count == 4.0


def test_missing_mask_dimensions_are_appended():
    values = np.arange(6.0).reshape(2, 3)
    state = AverageState.from_values(values, mask=np.array([0, 1]))
    assert state.compute() == 4.0
    assert state.count == 3.0


def test_scalar_mask_goes_with_a_scalar_value():
    assert AverageState.from_values(2.0, mask=0).compute() == 0.0
    assert AverageState.from_values(2.0, mask=np.array([True])).compute() == 2.0


@pytest.mark.parametrize(
    "values_shape, mask_shape",
    [((4, 3), (3,)), ((4, 3), (1, 3)), ((4, 3), (4, 2)), ((4,), (4, 1)), ((4,), ())],
)
def test_mask_that_does_not_fit_is_refused_with_both_shapes(values_shape, mask_shape):
    with pytest.raises(ValueError) as info:
        AverageState.from_values(np.ones(values_shape), mask=np.ones(mask_shape))
    assert str(values_shape) in str(info.value)
    assert str(mask_shape) in str(info.value)


def test_complex_values_are_refused():
    with pytest.raises(TypeError, match="complex"):
        AverageState.from_values(np.array([1j]))


def test_merge_is_the_mean_over_all_values_not_the_mean_of_means():
    small = AverageState.from_values(np.array([1.0]))
    large = AverageState.from_values(np.array([4.0, 4.0, 4.0, 4.0]))
    assert small.merge(large).compute() == pytest.approx(17 / 5)


def test_merge_of_different_shapes_is_refused_with_both_shapes():
    per_class = AverageState(total=np.ones(3), count=np.ones(3))
    with pytest.raises(ValueError, match=r"\(3,\).*\(\)"):
        per_class.merge(AverageState.empty())


def test_merge_with_another_kind_of_state_is_refused():
    with pytest.raises(TypeError, match="not a state"):
        AverageState.empty().merge(1.0)


def test_counting_on_from_a_large_count_loses_nothing():
    large = AverageState(total=jnp.float32(2**24), count=jnp.float32(2**24))
    one = AverageState.from_values(jnp.ones(1))
    for _ in range(100):
        large = large.merge(one)
    assert float(large.count) == 2**24 + 100
    assert float(large.total) == 2**24 + 100


def test_counting_on_in_a_compiled_loop_loses_nothing():
    large = AverageState(total=jnp.float32(2**24), count=jnp.float32(2**24))
    one = AverageState.from_values(jnp.ones(1))

    @jax.jit
    def add_many(state):
        return jax.lax.fori_loop(0, 100, lambda i, state: state.merge(one), state)

    assert float(add_many(large).count) == 2**24 + 100


def test_odd_counts_above_float32_precision_are_exact_in_the_mean():
    count = 2**24 + 1
    state = AverageState.from_values(jnp.ones(count, jnp.bool_))
    masked = AverageState.from_values(
        jnp.zeros(count, jnp.bool_), mask=jnp.ones(count, jnp.bool_)
    )
    assert float(state.count) + float(state.count_rest) == count
    assert float(masked.count) + float(masked.count_rest) == count


def test_many_small_values_sum_as_in_float64():
    values = np.random.default_rng(0).uniform(0, 1, (2000, 7)).astype(np.float32)
    state = AverageState.empty()
    for batch in values:
        state = state.merge(AverageState.from_values(batch))
    exact = np.mean(values, dtype=np.float64)
    assert state.compute() == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinite_values_stay_infinite_when_merged(bad):
    state = AverageState.from_values(np.array([bad]))
    merged = state.merge(AverageState.from_values(np.ones(3)))
    assert merged.compute() == bad
    assert merged.finalize().merge(merged.finalize()).compute() == bad


def test_finalized_states_are_numpy_and_merge_without_jax():
    state = AverageState.from_values(jnp.arange(4.0)).finalize()
    merged = state.merge(state)
    assert isinstance(merged.total, np.ndarray | np.generic)
    assert not isinstance(merged.total, jax.Array)
    assert merged.compute() == 1.5


def test_float64_is_kept_with_x64():
    with jax.enable_x64(True):
        tiny = 1 + 1e-12
        state = AverageState.from_values(np.array([tiny, tiny]))
        assert state.total.dtype == np.float64
        assert state.compute() == pytest.approx(tiny, rel=1e-15)


def test_states_can_be_vmapped():
    values, mask = jnp.arange(6.0).reshape(3, 2), jnp.array([[1, 1], [0, 1], [0, 0]])
    states = jax.vmap(lambda v, m: AverageState.from_values(v, mask=m))(values, mask)
    np.testing.assert_array_equal(states.compute(), [0.5, 3.0, 0.0])


def test_states_can_be_carried_through_scan():
    values = jnp.arange(12.0).reshape(4, 3)

    def step(state, batch):
        return state.merge(AverageState.from_values(batch)), None

    state, _ = jax.jit(lambda: jax.lax.scan(step, AverageState.empty(), values))()
    assert state.compute() == 5.5


@given(
    values=hnp.arrays(
        np.float32,
        st.sampled_from([(1,), (5,), (2, 3), (2, 1, 3)]),  # each is a program
        elements=st.floats(-100, 100, width=32),
    ),
    data=st.data(),
)
def test_matches_numpy_for_any_shape_and_weights(values, data):
    rank = data.draw(st.integers(1, values.ndim))
    mask = data.draw(
        hnp.arrays(np.float32, values.shape[:rank], elements=st.floats(0, 2, width=16))
    )
    weights = mask.reshape(mask.shape + (1,) * (values.ndim - rank))
    weights = np.broadcast_to(weights, values.shape).astype(np.float64)
    expected = (values * weights).sum() / weights.sum() if weights.sum() else 0.0
    value = AverageState.from_values(values, mask=mask).compute()
    assert value == pytest.approx(expected, rel=1e-4, abs=1e-3)
