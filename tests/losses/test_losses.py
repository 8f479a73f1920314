"""The base class of losses, and all losses of a context at once."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kontext, ktyping, losses, metrics
from kauldron.batch_mask import BATCH_MASK, UnmaskableError
from kauldron.immutabledict import ImmutableDict
from kauldron.losses import AllReduceMean

#
# One loss
#


PREDS = np.array([[1.0, 2.0], [3.0, 4.0]])
TARGETS = np.array([[1.0, 0.0], [0.0, 0.0]])
CONTEXT = {"preds": {"x": PREDS}, "batch": {"x": TARGETS, "mask": np.array([[1], [0]])}}


def l2(**kwargs):
    return losses.L2(preds="preds.x", targets="batch.x", **kwargs)


#
# Values
#


def test_called_with_inputs_it_is_the_mean():
    value = losses.L2()(preds=PREDS, targets=TARGETS)
    assert value == np.square(PREDS - TARGETS).mean()
    assert isinstance(value, float)


def test_called_with_a_context_it_equals_the_direct_call():
    assert l2()(context=CONTEXT) == losses.L2()(preds=PREDS, targets=TARGETS)


def test_value_can_be_differentiated():
    gradient = jax.grad(lambda p: losses.L2()(preds=p, targets=TARGETS))(
        jnp.asarray(PREDS)
    )
    np.testing.assert_allclose(gradient, 2 * (PREDS - TARGETS) / 4, rtol=1e-6)


def test_shapes_that_differ_are_refused_with_argument_keys_and_shapes():
    context = {"preds": {"x": np.ones((4, 3))}, "batch": {"x": np.ones((4, 1))}}
    with pytest.raises(ktyping.KTypeCheckError, match="argument targets") as info:
        l2()(context=context)
    for words in ("preds.x", "batch.x", "(4, 3)", "(4, 1)"):
        assert words in str(info.value)


def test_own_loss_needs_only_get_values():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class WeightDecay(losses.Loss):
        params: kontext.Key = kontext.REQUIRED

        def get_values(self, params):
            return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    loss = WeightDecay(params="params", weight=0.5)
    params = {"w": np.array([1.0, 2.0]), "b": np.array(3.0)}

    def total(params):
        return losses.compute_losses({"wd": loss}, {"params": params})[0]

    value, gradient = jax.jit(jax.value_and_grad(total))(params)
    assert value == 7.0
    np.testing.assert_allclose(gradient["w"], [1.0, 2.0])
    np.testing.assert_allclose(gradient["b"], 3.0)


def test_loss_without_get_values_cannot_be_made():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unfinished(losses.Loss):
        pass

    with pytest.raises(TypeError, match="get_values"):
        Unfinished()


def test_overridden_get_state_is_used_from_a_context():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Doubled(losses.L2):
        def get_state(self, preds, targets, mask=None):
            return super().get_state(preds=2 * preds, targets=2 * targets, mask=mask)

    loss = Doubled(preds="preds.x", targets="batch.x")
    assert loss(context=CONTEXT) == 4 * l2()(context=CONTEXT)


def test_keys_that_do_not_fit_get_values_are_refused_with_both():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class Misnamed(losses.Loss):
        inputs: kontext.Key = kontext.REQUIRED

        def get_values(self, values):
            return values

    with pytest.raises(TypeError, match="signature does not match") as info:
        Misnamed(inputs="preds.x")(context=CONTEXT)
    assert "inputs" in str(info.value)
    assert "values" in str(info.value)


def test_losses_are_metrics():
    assert isinstance(l2(), metrics.Metric)
    state = l2().get_state_from_context(CONTEXT)
    assert state.parent == l2()
    skipped = metrics.SkipIfMissing(l2())(context={"preds": {"x": PREDS}})
    assert skipped == {}


#
# Masks
#


def test_mask_key_restricts_the_loss():
    expected = np.square(PREDS - TARGETS)[0].mean()
    assert l2(mask="batch.mask")(context=CONTEXT) == expected


def test_normalizing_by_values_divides_by_all_elements():
    expected = np.square(PREDS - TARGETS)[0].sum() / 4
    value = l2(mask="batch.mask", normalize_by="values")(context=CONTEXT)
    assert value == expected


@pytest.mark.parametrize("normalize_by", ["mask", "values"])
def test_mask_of_zeros_gives_zero(normalize_by):
    loss = losses.L2(normalize_by=normalize_by)
    assert loss(preds=PREDS, targets=TARGETS, mask=np.zeros((2, 2))) == 0.0


@pytest.mark.parametrize("normalize_by", ["mask", "values"])
def test_mask_of_ones_changes_nothing(normalize_by):
    loss = losses.L2(normalize_by=normalize_by)
    value = loss(preds=PREDS, targets=TARGETS, mask=np.ones((2, 2)))
    assert value == losses.L2()(preds=PREDS, targets=TARGETS)


@pytest.mark.parametrize("dtype", [bool, np.float32, np.int32])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_masked_out_elements_are_ignored_even_if_not_finite(dtype, bad):
    preds = np.array([1.0, bad, 2.0])
    value = losses.L2()(
        preds=preds, targets=np.zeros(3), mask=np.array([1, 0, 1], dtype)
    )
    assert value == 2.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_masked_out_targets_leave_the_gradient_finite(bad):
    targets, mask = np.array([[0.0], [bad]]), np.array([[1.0], [0.0]])

    def total(preds):
        context = {"preds": {"x": preds}, "batch": {"x": targets, "mask": mask}}
        return losses.compute_losses({"l2": l2(mask="batch.mask")}, context)[0]

    gradient = jax.jit(jax.grad(total))(np.ones((2, 1)))
    np.testing.assert_array_equal(gradient, [[2.0], [0.0]])


def test_elements_that_count_stay_as_they_are():
    preds, mask = np.array([np.nan, 1.0, 1.0]), np.array([1, 0, 0], np.int32)
    value = losses.L2()(preds=preds, targets=np.zeros(3), mask=mask)
    assert np.isnan(value)


def test_masked_loss_of_a_tree_gets_the_tree():
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
    class SumOfTree(losses.Loss):
        tree: kontext.Key = kontext.REQUIRED

        def get_values(self, tree):
            return tree["a"] + tree["b"]

    tree = {"a": np.array([1.0, 5.0]), "b": np.array([1.0, 5.0])}
    assert SumOfTree()(tree=tree, mask=np.array([1, 0])) == 2.0


def test_loss_masks_broadcast_from_the_right():
    mask = np.array([1.0, 0.0])
    value = losses.L2()(preds=PREDS, targets=TARGETS, mask=mask)
    assert value == np.square(PREDS - TARGETS)[:, 0].mean()


def test_mask_that_does_not_broadcast_is_refused_with_both_shapes():
    with pytest.raises(ValueError) as info:
        losses.L2()(preds=PREDS, targets=TARGETS, mask=np.ones(5))
    assert "(5,)" in str(info.value)
    assert "(2, 2)" in str(info.value)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (2, 3, 4)])
def test_mask_of_records_fits_values_with_further_dimensions(shape):
    preds, targets = np.arange(np.prod(shape)).reshape(shape) + 1.0, np.zeros(shape)
    for mask in ([1.0, 0.0], [True, False]):
        get_state = jax.jit(losses.L2().get_state)
        state = get_state(preds=preds, targets=targets, mask=np.array(mask))
        assert state.compute() == pytest.approx(np.square(preds[0]).mean())


#
# Padded batches
#

PADDED = {
    "preds": {"x": PREDS, "loss": np.float32(3.0)},
    "batch": {"x": TARGETS, BATCH_MASK: np.array([True, False])},
    "params": {"w": np.array([[1.0, 3.0], [5.0, 7.0]])},
}


@pytest.mark.parametrize("normalize_by", ["mask", "values"])
def test_filler_of_a_padded_batch_does_not_count(normalize_by):
    real = np.square(PREDS - TARGETS)[0].mean()
    assert l2(normalize_by=normalize_by)(context=PADDED) == pytest.approx(real)


def test_filler_does_not_count_with_a_mask_and_all_values_either():
    context = {**PADDED, "weights": np.array([[1.0, 0.5], [0.0, 0.0]])}
    value = l2(mask="weights", normalize_by="values")(context=context)
    assert value == pytest.approx((0.0 + 0.5 * 4.0) / 2)


def test_a_mask_that_is_set_is_used_instead():
    context = {**PADDED, "mask": np.array([[0.0], [1.0]])}
    real = np.square(PREDS - TARGETS)[1].mean()
    assert l2(mask="mask")(context=context) == pytest.approx(real)


def test_loss_of_parameters_is_not_masked():
    assert losses.Value(values="params.w")(context=PADDED) == 4.0


def test_loss_that_cannot_be_masked_says_so():
    loss = losses.Value(values="preds.loss")
    with pytest.raises(UnmaskableError, match=r"In loss 'own'.*padded batch"):
        losses.compute_losses({"own": loss}, PADDED)

    class NoMask(losses.L2):
        def get_state(self, preds, targets):
            return super().get_state(preds=preds, targets=targets)

    loss = NoMask(preds="preds.x", targets="batch.x")
    with pytest.raises(UnmaskableError, match=r"In loss 'own'.*takes no `mask`"):
        losses.compute_losses({"own": loss}, PADDED)


@pytest.mark.parametrize("bad", ["mean", "", None])
def test_unknown_normalization_is_refused_at_construction(bad):
    with pytest.raises(ValueError, match="normalize_by"):
        losses.L2(normalize_by=bad)


#
# Weights
#


@pytest.mark.parametrize(
    "weight", [3, 3.0, np.float32(3), np.asarray(3.0), np.int64(3), jnp.asarray(3.0)]
)
def test_weight_is_any_number(weight):
    loss = l2(weight=weight)
    assert loss(context=CONTEXT) == 3 * l2()(context=CONTEXT)
    assert loss.get_weight().dtype == jnp.float32
    assert isinstance(hash(loss), int)


def test_weight_may_be_a_tracer():
    def loss(weight):
        return losses.L2(weight=weight)(preds=jnp.ones(2), targets=jnp.zeros(2))

    assert jax.grad(loss)(2.0) == 1.0


@pytest.mark.parametrize("weight", ["1.0", None, [1.0, 2.0]])
def test_weight_of_another_kind_is_refused_at_construction(weight):
    with pytest.raises(TypeError, match="weight"):
        losses.L2(weight=weight)


def test_schedule_is_evaluated_at_the_step_of_the_context():
    schedule = optax.linear_schedule(0.0, 1.0, 10)
    loss = l2(weight=schedule)
    assert loss(context={**CONTEXT, "step": 5}) == 0.5 * l2()(context=CONTEXT)


def test_schedule_is_evaluated_at_a_traced_step():
    loss = l2(weight=optax.linear_schedule(0.0, 1.0, 10))

    @jax.jit
    def total(step):
        return losses.compute_losses(loss, {**CONTEXT, "step": step})[0]

    for step in (0, 5, 10, 20):
        expected = min(step / 10, 1) * l2()(context=CONTEXT)
        assert total(step) == pytest.approx(expected, rel=1e-6)


def test_schedule_may_read_the_step_elsewhere():
    loss = l2(weight=lambda step: 2.0 * step, step="train.step")
    assert loss(context={**CONTEXT, "train": {"step": 3}}) == 6 * l2()(context=CONTEXT)


def test_schedule_without_a_step_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"schedule.*step"):
        l2(weight=lambda step: 1.0)(preds=PREDS, targets=TARGETS)


def test_schedule_with_a_context_without_step_is_a_key_error():
    with pytest.raises(KeyError, match="step"):
        l2(weight=lambda step: 1.0)(context=CONTEXT)


def test_constant_weight_needs_no_step():
    assert "step" not in CONTEXT
    assert l2(weight=2.0)(context=CONTEXT) == 2 * l2()(context=CONTEXT)
    assert "step" not in kontext.get_keypaths(l2())


#
# The state
#


def test_merging_unequal_batches_gives_the_mean_over_all_elements():
    loss = losses.L2()
    values = np.arange(10.0)
    state = loss.empty()
    get_state = jax.jit(loss.get_state)
    for part in (values[:2], values[2:9], values[9:]):
        state = state.merge(get_state(preds=part, targets=np.zeros_like(part)))
    assert state.compute() == np.square(values).mean()


def test_merging_many_states_loses_no_precision():
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 1, (3000, 3)).astype(np.float32)
    state = AllReduceMean.empty()
    for batch in values:
        state = state.merge(AllReduceMean.from_values(batch))
    assert state.compute() == pytest.approx(values.mean(dtype=np.float64), rel=1e-7)


def test_half_precision_is_summed_in_float32():
    preds = np.full(1000, 1.0, ml_dtypes.bfloat16)
    state = losses.Value().get_state(values=preds)
    assert state.value.dtype == jnp.float32
    assert state.value == 1000


def test_float64_is_kept_with_x64():
    with jax.enable_x64(True):
        preds = jnp.array([1 + 1e-12])
        assert losses.Value()(values=preds) == pytest.approx(1 + 1e-12, rel=1e-15)


def test_empty_loss_computes_zero():
    assert losses.L2().empty().compute() == 0.0


def test_merging_with_another_kind_of_state_is_refused():
    with pytest.raises(TypeError, match="AverageState"):
        AllReduceMean.empty().merge(metrics.AverageState.empty())


@given(
    seed=st.integers(0, 10_000),
    normalize_by=st.sampled_from(["mask", "values"]),
    mask_shape=st.sampled_from([(3, 4), (3, 1), (4,), ()]),
)
def test_state_matches_numpy(seed, normalize_by, mask_shape):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(3, 4)).astype(np.float32)
    mask = (rng.uniform(size=mask_shape) * rng.integers(0, 2, mask_shape)).astype(
        np.float32
    )
    weights = np.broadcast_to(mask, (3, 4)).astype(np.float64)
    count = weights.sum() if normalize_by == "mask" else 12
    expected = 0.7 * (values * weights).sum() / max(count, 1e-8)
    state = AllReduceMean.from_values(
        values, mask=mask, weight=0.7, normalize_by=normalize_by
    )
    assert state.compute() == pytest.approx(expected, rel=1e-4, abs=1e-5)


#
# All losses
#


PAIR = {"x": np.array([1.0, 3.0]), "y": np.array([0.0, 0.0])}
L1 = losses.L1(preds="x", targets="y")
L2 = losses.L2(preds="x", targets="y", weight=0.5)


def test_total_is_the_weighted_sum_and_states_keep_their_names():
    total, states = losses.compute_losses({"l1": L1, "l2": L2}, PAIR)
    assert total == 2.0 + 0.5 * 5.0
    assert total.dtype == jnp.float32 and total.shape == ()
    assert set(states) == {"l1", "l2"}
    assert states["l2"].compute() == 2.5
    assert states["l1"].parent is L1


@pytest.mark.parametrize("tree", [{}, ImmutableDict(), ()])
def test_no_losses_give_zero(tree):
    total, states = losses.compute_losses(tree, PAIR)
    assert total == 0.0 and total.dtype == jnp.float32
    assert not states


def test_single_loss_gives_a_single_state():
    total, state = losses.compute_losses(L1, PAIR)
    assert total == 2.0
    assert state.compute() == 2.0


def test_nested_and_frozen_trees_keep_their_structure():
    tree = ImmutableDict(a=ImmutableDict(b=L1), c=(L2, L1))
    total, states = losses.compute_losses(tree, PAIR)
    assert total == 2.0 + 2.5 + 2.0
    assert states["a"]["b"].compute() == 2.0
    assert states["c"][0].compute() == 2.5


def test_loss_that_was_replaced_by_nothing_counts_zero():
    tree = {"l1": L1, "off": metrics.NoopMetric()}
    total, states = losses.compute_losses(tree, PAIR)
    assert total == 2.0
    assert states["off"].compute() == {}


def test_total_inside_jit_and_its_gradient():
    def total(x):
        return losses.compute_losses({"a": L1, "b": L2}, {**PAIR, "x": x})[0]

    x = np.float32(PAIR["x"])
    assert jax.jit(total)(x) == 4.5
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
    context = {**PAIR, "mask": np.ones(5)}
    with pytest.raises(error, match="group/bad"):
        losses.compute_losses(tree, context)


def test_failed_type_check_names_the_loss():
    with pytest.raises(Exception, match=r"In loss 'rec': L1\(preds='x'"):
        losses.compute_losses({"rec": L1}, {"x": np.ones(2), "y": np.ones(3)})


def test_states_merge_outside_after_jit():
    step = jax.jit(lambda x: losses.compute_losses({"l1": L1}, {**PAIR, "x": x})[1])
    first, second = step(jnp.array([1.0, 1.0])), step(jnp.array([3.0, 3.0]))
    assert first["l1"].merge(second["l1"]).compute() == 2.0
