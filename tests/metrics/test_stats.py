"""Norms, standard deviations and single dimensions against plain numpy."""

import functools
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import metrics
from tests.metrics.values import values_of

RNG = np.random.default_rng(0)

#
# Norm
#


TENSOR = RNG.normal(size=(3, 4, 3)).astype(np.float32)
OF_VECTORS = list(itertools.product([1, 3], [None, 1, np.inf, 0], [0, None]))
OF_MATRICES = [None, "fro", "nuc", 1, 2, np.inf]


def of_rank(rank):
    return TENSOR if rank == 3 else TENSOR[0, 0]


@functools.cache
def norms():
    """Norms of vectors by rank, order and axis, and those of matrices by order."""
    measured = {
        (rank, order, axis): (
            metrics.Norm(axis=axis, ord=order),
            {"tensor": of_rank(rank)},
        )
        for rank, order, axis in OF_VECTORS
    }
    measured |= {
        order: (metrics.Norm(axis=(-2, -1), ord=order), {"tensor": TENSOR})
        for order in OF_MATRICES
    }
    return dict(zip(measured, values_of(*measured.values())))


@pytest.mark.parametrize(("rank", "order", "axis"), OF_VECTORS)
def test_vector_norm_matches_numpy(rank, order, axis):
    tensor = of_rank(rank)
    flat = tensor.ravel() if axis is None else tensor
    expected = np.linalg.norm(flat, ord=order, axis=0)
    value = norms()[rank, order, axis]
    assert value == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("order", OF_MATRICES)
def test_matrix_norm_matches_numpy(order):
    expected = np.linalg.norm(TENSOR, ord=order, axis=(-2, -1)).mean()
    assert norms()[order] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("axis", [-1, None])
def test_norm_of_a_scalar_is_its_absolute_value(axis):
    assert metrics.Norm(axis=axis)(tensor=np.float32(-3.0)) == 3.0


def test_norm_of_bfloat16_is_computed_in_float32():
    tensor = np.ones(1000, ml_dtypes.bfloat16)
    assert metrics.Norm()(tensor=tensor) == pytest.approx(1000**0.5, rel=1e-6)


@pytest.mark.parametrize("mask_shape", [(4,), (4, 1), (4, 1, 1), (4, 2, 1)])
def test_masked_norm_matches_numpy(mask_shape):
    tensor = RNG.normal(size=(4, 2, 3)).astype(np.float32)
    mask = RNG.integers(0, 2, mask_shape).astype(np.float32)
    mask.flat[0] = 1
    norms = np.linalg.norm(tensor, axis=-1, keepdims=True)
    weights = np.broadcast_to(
        mask.reshape(mask_shape + (1,) * (3 - mask.ndim)), norms.shape
    )
    value = metrics.Norm()(tensor=tensor, mask=mask)
    assert value == pytest.approx((norms * weights).sum() / weights.sum(), rel=1e-5)


@pytest.mark.parametrize("mask, expected", [(True, 5.0), (0.0, 0.0), (np.ones(1), 5.0)])
def test_norm_of_everything_takes_one_weight(mask, expected):
    metric = metrics.Norm(axis=None)
    assert metric(tensor=np.array([3.0, 4.0]), mask=np.asarray(mask)) == expected


def test_concat_norm_of_one_tensor_is_the_norm_of_all_its_values():
    tensor = RNG.normal(size=(4, 3)).astype(np.float32)
    metric = metrics.Norm(aggregation_type="concat")
    assert metric(tensor=tensor) == pytest.approx(np.linalg.norm(tensor), rel=1e-6)


def test_concat_norm_with_a_mask():
    tensor = np.array([[3.0, 0.0], [np.nan, np.nan], [0.0, 4.0]])
    metric = metrics.Norm(aggregation_type="concat")
    assert metric(tensor=tensor, mask=np.array([1, 0, 1])) == 5.0
    assert metric(tensor=tensor, mask=np.zeros(3)) == 0.0


@pytest.mark.parametrize("order", [0, -1, -2.5, float("nan"), "nuc"])
def test_concat_refuses_orders_that_cannot_be_put_together(order):
    with pytest.raises(ValueError, match="ord="):
        metrics.Norm(ord=order, aggregation_type="concat")


def test_unknown_aggregation_is_refused_at_construction():
    with pytest.raises(ValueError, match="'mean'"):
        metrics.Norm(aggregation_type="mean")


#
# Std
#


@pytest.mark.parametrize("shape", [(7,), (2, 4, 3)])
@pytest.mark.parametrize(
    "masked, dtype",
    [(False, np.float32), (True, np.float64), (True, ml_dtypes.bfloat16)],
)
def test_std_matches_numpy(shape, masked, dtype):
    values = RNG.normal(3, 2, size=shape).astype(dtype)
    exact = values.astype(np.float64)
    mask = RNG.uniform(0.1, 1, (*shape[:-1], 1)).astype(np.float32) if masked else None
    weights = np.broadcast_to(1.0 if mask is None else mask, shape)
    mean = np.average(exact, weights=weights)
    expected = np.average((exact - mean) ** 2, weights=weights) ** 0.5
    if masked and len(shape) == 1:
        mask = np.broadcast_to(mask, shape)
    value = metrics.Std()(values=values, mask=mask)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_std_far_from_zero_keeps_its_digits(offset):
    values = (offset + np.array([[0.0, 1.0, 2.0]])).astype(np.float32)
    assert metrics.Std()(values=values) == pytest.approx((2 / 3) ** 0.5, rel=1e-6)


def test_std_far_from_zero_keeps_its_digits_when_merged():
    metric = metrics.Std()
    values = (1e5 + RNG.normal(size=(200, 4))).astype(np.float32)
    state = metric.empty()
    for row in values:
        state = state.merge(metric.get_state(values=row))
    expected = np.std(values.astype(np.float64))
    assert state.compute() == pytest.approx(expected, rel=1e-5)


def test_std_of_equal_values_is_zero_and_not_below():
    values = np.full(3, 42.785926818847656, np.float32)
    assert metrics.Std()(values=values) == pytest.approx(0.0, abs=1e-3)


def test_std_of_nothing_is_zero():
    assert metrics.Std().empty().compute() == 0.0
    assert metrics.Std()(values=np.ones((2, 3)), mask=np.zeros((2, 1))) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_std_ignores_what_is_masked_out(bad, dtype):
    values = np.array([[1.0, 3.0], [bad, bad]])
    assert metrics.Std()(values=values, mask=np.array([[1], [0]], dtype)) == 1.0


def test_std_merges_inside_a_compiled_loop():
    metric = metrics.Std()
    values = jnp.asarray(RNG.normal(size=(50, 8)), jnp.float32)

    def step(state, row):
        return state.merge(metric.get_state(values=row)), None

    state, _ = jax.jit(lambda v: jax.lax.scan(step, metric.empty(), v))(values)
    assert state.compute() == pytest.approx(np.std(np.asarray(values)), rel=1e-5)


@given(
    batches=st.lists(
        st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    )
)
def test_std_of_merged_batches_is_that_of_all_values(batches):
    metric = metrics.Std()
    state = metric.empty()
    for batch in batches:
        state = state.merge(metric.get_state(values=np.array(batch, np.float32)))
    expected = np.std(np.array(batches, np.float32).astype(np.float64))
    assert state.compute() == pytest.approx(expected, rel=1e-4, abs=1e-3)


#
# SingleDimension
#


@pytest.mark.parametrize("index", [0, 2, -1])
def test_single_dimension_is_the_mean_of_one_entry(index):
    tensor = RNG.normal(size=(2, 4, 3)).astype(np.float32)
    value = metrics.SingleDimension(index=index)(tensor=tensor)
    assert value == pytest.approx(tensor[..., index].mean(), rel=1e-5, abs=1e-6)


def test_single_dimension_without_index_is_the_mean_of_all():
    tensor = np.arange(6.0).reshape(2, 3)
    assert metrics.SingleDimension(index=None)(tensor=tensor) == 2.5


@pytest.mark.parametrize("index, shape", [(3, (2, 3)), (-4, (2, 3)), (0, ())])
def test_single_dimension_out_of_range_is_refused(index, shape):
    with pytest.raises(ValueError, match=f"index {index}"):
        metrics.SingleDimension(index=index)(tensor=np.ones(shape))
