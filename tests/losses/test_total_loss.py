"""All losses of a context."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import losses, metrics
from kauldron.konfig.immutabledict import ImmutableDict

CONTEXT = {"x": np.array([1.0, 3.0]), "y": np.array([0.0, 0.0])}
L1 = losses.L1(preds="x", targets="y")
L2 = losses.L2(preds="x", targets="y", weight=0.5)


def test_total_is_the_weighted_sum_and_states_keep_their_names():
    total, states = losses.compute_losses({"l1": L1, "l2": L2}, CONTEXT)
    assert total == 2.0 + 0.5 * 5.0
    assert total.dtype == jnp.float32 and total.shape == ()
    assert set(states) == {"l1", "l2"}
    assert states["l2"].compute() == 2.5
    assert states["l1"].parent is L1


@pytest.mark.parametrize("tree", [{}, ImmutableDict(), ()])
def test_no_losses_give_zero(tree):
    total, states = losses.compute_losses(tree, CONTEXT)
    assert total == 0.0 and total.dtype == jnp.float32
    assert not states


def test_single_loss_gives_a_single_state():
    total, state = losses.compute_losses(L1, CONTEXT)
    assert total == 2.0
    assert state.compute() == 2.0


def test_nested_and_frozen_trees_keep_their_structure():
    tree = ImmutableDict(a=ImmutableDict(b=L1), c=(L2, L1))
    total, states = losses.compute_losses(tree, CONTEXT)
    assert total == 2.0 + 2.5 + 2.0
    assert states["a"]["b"].compute() == 2.0
    assert states["c"][0].compute() == 2.5


def test_loss_that_was_replaced_by_nothing_counts_zero():
    tree = {"l1": L1, "off": metrics.NoopMetric()}
    total, states = losses.compute_losses(tree, CONTEXT)
    assert total == 2.0
    assert states["off"].compute() == {}


def test_total_inside_jit_and_its_gradient():
    def total(x):
        return losses.compute_losses({"a": L1, "b": L2}, {**CONTEXT, "x": x})[0]

    x = jnp.asarray(CONTEXT["x"])
    assert jax.jit(total)(x) == 4.5
    np.testing.assert_allclose(jax.grad(total)(x), [0.5 + 0.5, 0.5 + 1.5])
    np.testing.assert_allclose(jax.jit(jax.grad(total))(x), [1.0, 2.0])


@pytest.mark.parametrize(
    "bad, error",
    [
        (losses.L1(preds="nope", targets="y"), KeyError),
        (losses.L1(targets="y"), ValueError),
        (losses.L1(preds="x", targets="y", mask="mask"), ValueError),
        ("not a loss", TypeError),
    ],
)
def test_error_names_the_loss(bad, error):
    tree = {"good": L1, "group": {"bad": bad}}
    context = {**CONTEXT, "mask": np.ones(5)}
    with pytest.raises(error, match="group/bad"):
        losses.compute_losses(tree, context)


def test_failed_type_check_names_the_loss():
    with pytest.raises(Exception, match=r"In loss 'rec': L1\(preds='x'"):
        losses.compute_losses({"rec": L1}, {"x": np.ones(2), "y": np.ones(3)})


def test_states_merge_outside_after_jit():
    step = jax.jit(lambda x: losses.compute_losses({"l1": L1}, {**CONTEXT, "x": x})[1])
    first, second = step(jnp.array([1.0, 1.0])), step(jnp.array([3.0, 3.0]))
    assert first["l1"].merge(second["l1"]).compute() == 2.0
