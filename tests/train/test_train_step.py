"""Initialisation, forward passes, and one step."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import checkify

from kauldron import kd
from kauldron.train.train_step import TrainStep
from tests.train.toy import Linear, make_trainer


@pytest.fixture(scope="module")
def trainer():
    return make_trainer("unused", checkpointer=None)


@pytest.fixture(scope="module")
def batch(trainer):
    return next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))


def _assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


#
# Initialisation
#


def test_state_starts_at_step_zero_with_an_integer_of_its_own_type(trainer):
    state = trainer.init_state()
    assert state.step == 0
    assert state.step.dtype == jnp.int32 and not state.step.weak_type
    assert set(state.params) == {"dense"} and state.collections == {}
    assert int(state.opt_state[0].count) == 0


def test_states_are_computed_anew_and_equal(trainer):
    first, second = trainer.init_state(), trainer.init_state()
    assert first.params["dense"]["kernel"] is not second.params["dense"]["kernel"]
    _assert_equal(first, second)


@pytest.mark.usefixtures("as_for_users")
def test_parameters_are_those_of_flax_with_the_streams_of_the_seed(trainer):
    rngs = kd.train.RngStreams(seed=0).init_rngs()
    init = jax.jit(Linear(x="batch.x").init, static_argnames="is_training_property")
    expected = init(rngs, np.zeros((16, 4), np.float32), is_training_property=True)
    _assert_equal(trainer.init_state().params, expected["params"])


def test_optimizer_can_be_left_out(trainer):
    assert trainer.init_state(skip_optimizer=True).opt_state is None
    assert trainer.replace(optimizer=None).init_state().opt_state is None


def test_other_data_can_be_described(trainer):
    spec = {"x": jax.ShapeDtypeStruct((2, 9), jnp.float32)}
    state = trainer.init_state(element_spec=spec)
    assert state.params["dense"]["kernel"].shape == (9, 2)


def test_other_method_of_the_model_can_initialise():
    class TwoHeads(nn.Module):
        def setup(self):
            self.dense, self.extra = nn.Dense(2), nn.Dense(5)

        def __call__(self, batch):
            return {"y": self.dense(batch["x"])}

        def both(self, batch):
            return {"y": self.dense(batch["x"]), "z": self.extra(batch["x"])}

    trainer = make_trainer("unused", model=TwoHeads(), checkpointer=None)
    spec = trainer.train_ds.element_spec
    assert set(trainer.trainstep.init(spec).params) == {"dense"}
    both = trainer.trainstep.init(spec, model_method="both")
    assert set(both.params) == {"dense", "extra"}


def test_step_outside_of_a_trainer_says_what_is_missing(trainer):
    with pytest.raises(ValueError, match=r"TrainStep.model` is not set"):
        kd.train.TrainStep().init(trainer.train_ds.element_spec)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording(kd.ckpts.InitTransform):
    """Notes what the state has when it is called."""

    calls: list = dataclasses.field(default_factory=list, hash=False)

    def transform(self, state):
        self.calls.append(("transform", state.opt_state is None))
        params = jax.tree.map(jnp.zeros_like, state.params)
        return state.replace(params=params)

    def transform_after_optimizer(self, state):
        self.calls.append(("after optimizer", state.opt_state is None))
        return state


def test_transforms_come_before_and_after_the_optimizer(trainer):
    transform = Recording()
    changed = trainer.replace(init_transform=transform)
    state = changed.init_state()
    assert transform.calls == [("transform", True), ("after optimizer", False)]
    assert not np.any(state.params["dense"]["kernel"])
    assert np.any(changed.init_state(skip_transforms=True).params["dense"]["kernel"])
    assert len(transform.calls) == 2


class Halving(kd.train.TrainStep):
    """Uses the points that subclasses may change."""

    def _init_model(self, elem_spec, *, model_method):
        state = super()._init_model(elem_spec, model_method=model_method)
        return state.replace(params=jax.tree.map(lambda p: p / 2, state.params))

    def _init_optimizer(self, state):
        state = super()._init_optimizer(state)
        return state.replace(collections={"note": jnp.ones(())})


def test_phases_of_initialisation_can_be_overridden(trainer):
    state = trainer.replace(trainstep=Halving()).init_state()
    plain = trainer.init_state()
    np.testing.assert_array_equal(
        state.params["dense"]["kernel"], plain.params["dense"]["kernel"] / 2
    )
    assert set(state.collections) == {"note"}


#
# Forward passes
#


def _context(trainer, batch):
    return kd.train.Context.from_state_and_batch(
        state=trainer.init_state(), batch=batch
    )


def test_forward_fills_predictions_and_intermediates(trainer, batch):
    context = kd.train.forward(
        _context(trainer, batch),
        model=trainer.model,
        rngs=trainer.rng_streams.train_rngs(0),
        is_training=True,
    )
    expected = batch["x"] @ context.params["dense"]["kernel"]
    np.testing.assert_allclose(context.preds["y"], expected, rtol=1e-5)
    np.testing.assert_array_equal(
        context.interms["dense"]["__call__"][0], context.preds["y"]
    )
    assert context.collections == {} and context.loss_states is None


def test_forward_takes_another_method_and_no_collections(batch):
    class Plain(nn.Module):
        def __call__(self, batch):
            return batch["x"]

        def double(self, batch):
            return 2 * batch["x"]

    context = kd.train.Context(step=0, batch=batch, params={}, collections=None)
    result = kd.train.forward(
        context, model=Plain(), rngs={}, is_training=False, method="double"
    )
    np.testing.assert_array_equal(result.preds, 2 * batch["x"])


def test_forward_with_loss_adds_the_losses(trainer, batch):
    total, context = kd.train.forward_with_loss(
        _context(trainer, batch),
        model=trainer.model,
        losses=trainer.train_losses,
        rngs=trainer.rng_streams.train_rngs(0),
        is_training=True,
    )
    expected = np.mean((np.asarray(context.preds["y"]) - np.asarray(batch["y"])) ** 2)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    assert context.loss_total is total
    assert float(context.loss_states["l2"].compute()) == pytest.approx(float(total))


def test_older_object_with_a_forward_pass(trainer, batch):
    model_with_aux = trainer.trainstep.model_with_aux
    ctx = kd.train.Context.from_state_and_batch(state=trainer.init_state(), batch=batch)
    with pytest.warns(DeprecationWarning, match="forward_with_loss") as warned:
        loss, ctx = model_with_aux.forward(
            ctx, rngs=trainer.rng_streams.train_rngs(0), is_training=True
        )
    assert len(warned) == 1 and loss.shape == ()
    assert ctx.preds["y"].shape == (16, 2) and set(ctx.loss_states) == {"l2"}
    with pytest.warns(DeprecationWarning, match="update_context") as warned:
        aux = model_with_aux.get_aux(ctx, return_losses=True, return_metrics=True)
    assert len(warned) == 1
    assert set(aux.compute().metric_values) == {"metrics/norm"}
    assert aux.summary_states is None


#
# One step
#


def test_step_returns_what_is_asked_for(trainer, batch):
    state = trainer.init_state()
    state, aux = trainer.trainstep.step(state, batch)
    assert aux.compute() == kd.train.AuxiliariesOutput() and aux.error is None
    state, aux = trainer.trainstep.step(state=state, batch=batch, return_metrics=True)
    assert aux.loss_states is None and set(aux.metric_states) == {"norm"}
    assert int(state.step) == 2


def test_state_that_was_passed_is_consumed(trainer, batch):
    state = trainer.init_state()
    trainer.trainstep.step(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        trainer.trainstep.step(state, batch)


def test_step_can_be_looked_at_without_running(trainer, batch):
    specs, aux = jax.eval_shape(
        lambda state, batch: trainer.trainstep.step(state, batch, return_losses=True),
        trainer.state_specs,
        batch,
    )
    assert specs.params["dense"]["kernel"].shape == (4, 2)
    assert set(aux.loss_states) == {"l2"}
    lowered = trainer.trainstep.step.lower(
        trainer.state_specs, batch, return_losses=True
    )
    assert "dot_general" in lowered.as_text()


def test_update_is_that_of_the_optimizer(trainer, batch):
    state = trainer.init_state()
    old = jax.device_get(state.params)

    def loss(params):
        y = batch["x"] @ params["dense"]["kernel"] + params["dense"]["bias"]
        return jnp.mean((y - batch["y"]) ** 2)

    @jax.jit
    def update(state):
        grads = jax.grad(loss)(state.params)
        updates, _ = optax.adam(1e-2).update(grads, state.opt_state, state.params)
        return optax.apply_updates(state.params, updates)

    expected = update(state)
    state, _ = trainer.trainstep.step(state, batch)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), state.params, expected
    )
    assert not np.array_equal(state.params["dense"]["kernel"], old["dense"]["kernel"])


@pytest.mark.usefixtures("as_for_users")
def test_context_holds_what_was_before_the_update(trainer, batch):
    state = trainer.init_state()
    new_state, context = jax.jit(trainer.trainstep._step)(state, batch)
    _assert_equal(context.params, state.params)
    _assert_equal(context.opt_state, state.opt_state)
    _assert_equal(
        new_state.params, optax.apply_updates(context.params, context.updates)
    )
    assert int(context.step) == 0 and int(new_state.step) == 1
    assert jax.tree.structure(context.grads) == jax.tree.structure(state.params)


def test_integer_parameters_have_no_gradient(trainer, batch):
    class Counting(nn.Module):
        @nn.compact
        def __call__(self, batch):
            self.param("count", lambda key: jnp.ones((), jnp.int32))
            return {"y": nn.Dense(2, name="dense")(batch["x"])}

    counting = trainer.replace(
        model=Counting(),
        optimizer=kd.optim.partial_updates(
            optax.sgd(0.1), mask=kd.optim.select("dense")
        ),
    )
    state, _ = counting.trainstep.step(counting.init_state(), batch)
    assert int(state.params["count"]) == 1 and int(state.step) == 1


def test_checks_give_an_error_value_only_when_asked_for(trainer, batch):
    bad = {**batch, "x": batch["x"] * np.inf}
    _, aux = trainer.trainstep.step(
        trainer.init_state(), bad, checkify_error_categories=checkify.float_checks
    )
    with pytest.raises(checkify.JaxRuntimeError, match="nan"):
        aux.error.throw()
    _, aux = trainer.trainstep.step(trainer.init_state(), bad)
    assert aux.error is None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scaled(kd.train.TrainStep):
    """Scales the updates by a field of its own."""

    scale: float = kd.utils.config_util.ROOT_CFG_REF.aux["scale"]

    def _step(self, state, batch):
        first, context = super()._step(state, batch)
        params = jax.tree.map(
            lambda old, new: old + self.scale * (new - old), state.params, first.params
        )
        return first.replace(params=params), context


def test_subclass_changes_the_step_and_takes_values_of_the_trainer(trainer, batch):
    changed = trainer.replace(trainstep=Scaled(), aux={"scale": 0.0})
    assert changed.trainstep.scale == 0.0
    before = changed.init_state()
    expected = jax.device_get(before.params)
    state, aux = changed.trainstep.step(before, batch, return_losses=True)
    _assert_equal(state.params, expected)
    assert int(state.step) == 1 and "losses/l2" in aux.compute().loss_values


def test_two_steps_are_equal_only_if_they_are_the_same(trainer):
    assert trainer.trainstep == trainer.trainstep
    assert TrainStep() != TrainStep()
    assert len({trainer.trainstep, trainer.trainstep, TrainStep()}) == 2
