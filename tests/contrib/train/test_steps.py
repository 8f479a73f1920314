"""Other train steps: a GAN, in which each loss has an optimizer, and none at all."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, kontext, writers
from tests.train.toy import make_trainer


class Gan(nn.Module):
    """A generator of points and a discriminator that judges them."""

    real: kontext.Key = kontext.REQUIRED

    def setup(self):
        self.generator = nn.Dense(3)
        self.discriminator = nn.Dense(1)

    def __call__(self, real):
        noise = jax.random.normal(self.make_rng("default"), (real.shape[0], 2))
        fake = self.generator(noise)
        return {"real": self.discriminator(real), "fake": self.discriminator(fake)}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class DiscriminatorLoss(kd.losses.Loss):
    real: kontext.Key = kontext.REQUIRED
    fake: kontext.Key = kontext.REQUIRED

    def get_values(self, real, fake):
        return nn.softplus(-real) + nn.softplus(fake)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class GeneratorLoss(kd.losses.Loss):
    fake: kontext.Key = kontext.REQUIRED

    def get_values(self, fake):
        return nn.softplus(-fake)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=True)
class GradientPenalty(kd.losses.Loss):
    """Reads the gradients of an earlier loss."""

    grads: kontext.Key = kontext.REQUIRED

    def get_values(self, grads):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(grads))[None]


LOSSES = {
    "discriminator": DiscriminatorLoss(real="preds.real", fake="preds.fake"),
    "generator": GeneratorLoss(fake="preds.fake"),
}
NORM = kd.metrics.Norm(tensor="subgrads.generator.generator.kernel", axis=None)
PENALTY = GradientPenalty(grads="subgrads.discriminator.discriminator")


def _part(name, **kwargs):
    return kd.optim.partial_update(
        optimizer=optax.sgd(0.1), mask=kd.optim.select(name), **kwargs
    )


def _optimizer(**more):
    return kd.contrib.train.multi_optimizer(
        discriminator=_part("discriminator"), generator=_part("generator"), **more
    )


def _trainer(workdir="unused", **changes):
    points = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    kwargs = {
        "workdir": str(workdir),
        "train_ds": kd.data.py.Arrays({"x": points}, shuffle=True, batch_size=8),
        "model": Gan(real="batch.x"),
        "losses": LOSSES,
        "trainstep": kd.contrib.train.MultiTrainStep(),
        "optimizer": _optimizer(),
        "num_train_steps": 3,
        "profiler": None,
    }
    return kd.train.Trainer(**(kwargs | changes))


def _batch(trainer):
    return next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))


def _step(trainer):
    """State before, state after, and the context of one step."""
    state = trainer.init_state()
    new_state, context = jax.jit(trainer.trainstep._step)(state, _batch(trainer))
    return state, new_state, context


def _assert_close(a, b):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b
    )


def _losses_of(trainer, params, batch):
    """Both losses as plain functions of the parameters."""
    preds = trainer.model.apply(
        {"params": params}, batch["x"], rngs=trainer.rng_streams.train_rngs(0)
    )
    discriminator = nn.softplus(-preds["real"]) + nn.softplus(preds["fake"])
    return {
        "discriminator": discriminator.mean(),
        "generator": nn.softplus(-preds["fake"]).mean(),
    }


@pytest.fixture(scope="module")
def trainer():
    return _trainer(train_metrics={"norm": NORM})


@pytest.fixture(scope="module")
def step(trainer):
    return _step(trainer)


def test_each_optimizer_follows_the_gradient_of_its_own_loss(trainer, step):
    state, new_state, context = jax.device_get(step)
    batch = _batch(trainer)
    gradients = jax.jit(jax.jacrev(lambda p: _losses_of(trainer, p, batch)))
    for name, grads in jax.device_get(gradients(state.params)).items():
        _assert_close(context.subgrads[name], grads)
        expected = jax.tree.map(
            lambda p, g: p - 0.1 * g, state.params[name], grads[name]
        )
        _assert_close(new_state.params[name], expected)


def test_each_optimizer_changes_only_its_own_parameters(step):
    state, _, context = step
    for name, other in (("discriminator", "generator"), ("generator", "discriminator")):
        updates = context.subupdates[name]
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(updates[other]))
        assert any(np.any(leaf) for leaf in jax.tree.leaves(updates[name]))
    assert set(state.params) == {"discriminator", "generator"}


def test_context_has_the_sums_and_all_losses(step):
    state, new_state, context = step
    for total, parts in (("grads", "subgrads"), ("updates", "subupdates")):
        added = jax.tree.map(np.add, *getattr(context, parts).values())
        _assert_close(getattr(context, total), added)
    values = [float(s.compute()) for s in context.loss_states.values()]
    assert float(context.loss_total) == pytest.approx(sum(values))
    _assert_close(context.params, state.params)
    assert int(new_state.step) == 1


def test_state_of_the_optimizers_keeps_its_structure(step):
    state, new_state, context = step
    assert type(state.opt_state) is type(new_state.opt_state) is dict
    assert jax.tree.structure(state) == jax.tree.structure(new_state)
    assert jax.tree.structure(context.opt_state) == jax.tree.structure(state.opt_state)


def test_metric_reads_the_gradient_of_one_loss(step):
    _, _, context = step
    expected = np.linalg.norm(context.subgrads["generator"]["generator"]["kernel"])
    assert float(context.metric_states["norm"].compute()) == pytest.approx(expected)


@pytest.fixture(scope="module")
def penalised_step(trainer):
    penalised = trainer.replace(
        train_losses={**LOSSES, "penalty": PENALTY},
        train_metrics={},
        optimizer=_optimizer(penalty=_part("discriminator")),
    )
    return _step(penalised)


def test_loss_reads_the_gradient_of_an_earlier_one(trainer, penalised_step):
    state, _, context = penalised_step
    batch = _batch(trainer)

    def penalty(params):
        grads = jax.grad(lambda p: _losses_of(trainer, p, batch)["discriminator"])(
            params
        )
        return sum(jnp.sum(g**2) for g in jax.tree.leaves(grads["discriminator"]))

    value, grads = jax.jit(jax.value_and_grad(penalty))(state.params)
    assert float(context.loss_states["penalty"].compute()) == pytest.approx(
        float(value)
    )
    _assert_close(context.subgrads["penalty"], grads)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(grads))


def test_other_losses_have_the_same_gradients_beside_one_that_reads_them(
    penalised_step, step
):
    _, _, context = penalised_step
    for name in LOSSES:
        _assert_close(context.subgrads[name], step[2].subgrads[name])


def test_loss_without_optimizer_is_reported_and_warned_about(trainer):
    idle = trainer.replace(
        train_metrics={},
        optimizer=kd.contrib.train.multi_optimizer(generator=_part("generator")),
    )
    with pytest.warns(UserWarning, match="No optimizer for the losses discriminator"):
        state, new_state, context = _step(idle)
    assert set(context.loss_states) == set(LOSSES)
    assert set(context.subgrads) == {"generator"}
    jax.tree.map(
        np.testing.assert_array_equal,
        state.params["discriminator"],
        new_state.params["discriminator"],
    )


def test_one_forward_pass_serves_all_losses():
    calls = []

    class Counting(Gan):
        def __call__(self, real):
            calls.append(1)
            return super().__call__(real)

    trainer = _trainer(model=Counting(real="batch.x"))
    specs = trainer.state_specs
    batch = _batch(trainer)
    calls.clear()
    jax.eval_shape(trainer.trainstep._step, specs, batch)
    assert len(calls) == 1


def test_run_trains_saves_and_resumes(tmp_path):
    trainer = _trainer(
        tmp_path / "whole",
        num_train_steps=4,
        log_metrics_every=1,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=4),
    )
    whole, _ = trainer.train()
    half = trainer.replace(workdir=tmp_path / "half", stop_after_steps=3)
    half.train()
    rest, _ = half.replace(stop_after_steps=None).train()
    jax.tree.map(np.testing.assert_array_equal, rest, whole)
    [first, *_] = writers.read_scalars(tmp_path / "whole" / "train")[1:]
    names = {name for name in first["values"] if name.startswith("losses/")}
    assert names == {"losses/discriminator", "losses/generator", "losses/total"}


#
# multi_optimizer
#

PARAMS = {"generator": np.ones(2), "discriminator": np.ones(3)}


def gan_optimizer():
    return kd.contrib.train.multi_optimizer(
        generator=kd.optim.partial_update(
            optimizer=optax.adam(1e-3), mask=kd.optim.select("generator")
        ),
        discriminator=kd.optim.partial_update(
            optimizer=optax.adam(1e-4), mask=kd.optim.select("discriminator")
        ),
    )


def test_state_is_a_dict_from_loss_to_state():
    state = gan_optimizer().init(PARAMS)
    assert type(state) is dict
    assert list(state) == ["generator", "discriminator"]
    adam = state["generator"].inner_states["train"].inner_state[0]
    assert jax.tree.leaves(adam.mu["discriminator"]) == []


def test_optimizers_are_readable_and_usable_on_their_own():
    optimizer = gan_optimizer()
    assert list(optimizer.loss_to_optimizer) == ["generator", "discriminator"]
    state = optimizer.init(PARAMS)
    part = optimizer.loss_to_optimizer["generator"]
    updates, new_state = part.update(PARAMS, state["generator"], PARAMS)
    assert updates["discriminator"].tolist() == [0.0, 0.0, 0.0]
    assert jax.tree.structure(new_state) == jax.tree.structure(state["generator"])


def test_it_is_an_optax_transformation():
    assert isinstance(gan_optimizer(), optax.GradientTransformation)


def test_initialises_under_jit():
    state = jax.jit(gan_optimizer().init)(PARAMS)
    assert jax.tree.structure(state) == jax.tree.structure(gan_optimizer().init(PARAMS))


@pytest.mark.parametrize("args", [(), ({}, {}), (PARAMS, None, PARAMS)])
def test_update_points_to_the_train_step(args):
    with pytest.raises(TypeError, match="MultiTrainStep"):
        gan_optimizer().update(*args)


def test_no_optimizer():
    with pytest.raises(ValueError, match="at least one"):
        kd.contrib.train.multi_optimizer()


#
# NoopTrainStep
#


def test_steps_are_counted_and_nothing_is_computed(tmp_path):
    trainer = make_trainer(
        tmp_path, trainstep=kd.contrib.train.NoopTrainStep(), num_train_steps=7
    )
    state, aux = trainer.train()
    assert int(state.step) == 7
    assert state.params == state.collections == state.opt_state == {}
    assert aux.compute().loss_values == {}


def test_one_step_by_hand(tmp_path):
    trainer = make_trainer(tmp_path, trainstep=kd.contrib.train.NoopTrainStep())
    state = trainer.init_state()
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    state, aux = trainer.trainstep.step(state, batch, return_losses=True)
    assert int(state.step) == 1
    assert aux.loss_states == {}
