"""How many steps are grouped: by what a step costs, and by where the host looks."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron.train.run import step_groups


@given(st.lists(st.integers(1, 5000), min_size=1), st.integers(1, 1024))
def test_groups_need_few_calls(runs, most):
    def calls(size):
        return sum(run // size + run % size for run in runs)

    size = step_groups.best_size(runs, most)
    assert 1 <= size <= most
    assert calls(size) <= sum(runs)
    if len(set(runs)) == 1:  # what is left over is less than there are groups
        assert calls(size) < 2 * sum(-(-run // most) for run in runs)


def _matmul(x):
    return jnp.tanh(x @ x.T)


def _convolve(x):
    image, kernel = x.reshape(4, 32, 32, 16), jnp.ones((3, 3, 16, 8))
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=dimensions
    )


def _repeat(x):
    return jax.lax.scan(lambda x, _: (x @ jnp.ones((256, 256)), None), x, length=7)[0]


def _nested(x):
    return jax.jit(jax.checkpoint(_matmul))(x)


@pytest.mark.parametrize("fn", [_matmul, _convolve, _nested])
def test_arithmetic_is_that_of_xla(fn):
    x = jnp.ones((256, 256))
    traced = jax.jit(fn).trace(x)
    flops, touched = step_groups.work_of(traced.jaxpr.jaxpr)
    expected = traced.lower().cost_analysis()
    assert flops == pytest.approx(expected["flops"], rel=0.1)
    assert touched == pytest.approx(expected["bytes accessed"], rel=0.5)


def test_loops_count_as_often_as_they_run():
    x = jnp.ones((256, 256))
    flops, _ = step_groups.work_of(jax.jit(_repeat).trace(x).jaxpr.jaxpr)
    assert flops == pytest.approx(7 * 2 * 256**3, rel=0.01)


@pytest.mark.parametrize(
    ("size", "bytes_per_step", "most"),
    [(64, 0, 1024), (64, 2**20, 64), (64, 2**30, 1), (8192, 0, 1)],
)
def test_long_steps_and_large_batches_are_not_grouped(size, bytes_per_step, most):
    traced = jax.jit(_matmul).trace(jax.ShapeDtypeStruct((size, size), jnp.float32))
    assert step_groups.most_steps(traced.jaxpr, bytes_per_step=bytes_per_step) == most


def test_random_keys_are_small():
    assert step_groups.num_bytes([jax.random.key(0), jnp.ones((3, 2), jnp.int8)]) == 14
