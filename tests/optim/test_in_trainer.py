"""Optimizers at work in a trainer."""

import dataclasses
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import ckpts, data, evals, kd, kontext, train


def _pipeline():
    def load():
        x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
        return {"x": x, "y": x[:, :1], "ones": np.ones((16, 1), np.float32)}

    return data.InMemoryPipeline(loader=load, batch_size=8)


class Linear(nn.Module):
    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1, name="head")(nn.Dense(3, name="encoder")(x))


def make_trainer(**kwargs):
    defaults = {
        "train_ds": _pipeline(),
        "model": Linear(),
        "train_losses": {"l2": kd.losses.L2(preds="preds", targets="batch.y")},
        "optimizer": optax.sgd(0.1),
        "num_train_steps": 3,
    }
    return train.Trainer(**defaults | kwargs)


def run_steps(trainer, num_steps=1, **flags):
    state = trainer.init_state()
    batches = list(trainer.train_ds.take(num_steps).device_put())
    for batch in batches:
        state, aux = trainer.trainstep.step(state, batch, **flags)
    return state, aux


def _equal(a, b):
    same = jax.tree.map(lambda x, y: bool((x == y).all()), a, b)
    return all(jax.tree.leaves(same))


def test_frozen_part_does_not_move():
    trainer = make_trainer(
        optimizer=kd.optim.partial_updates(optax.adam(0.1), kd.optim.select("head"))
    )
    before = trainer.init_state().params
    after = run_steps(trainer, num_steps=2)[0].params
    assert _equal(before["encoder"], after["encoder"])
    assert not _equal(before["head"], after["head"])


def test_state_without_optimizer():
    trainer = make_trainer(optimizer=None)
    assert trainer.init_state().opt_state is None


@dataclasses.dataclass(frozen=True)
class LoadOnes(ckpts.InitTransform):
    """Stands for loading weights."""

    def transform(self, state):
        return state.replace(params=jax.tree.map(jnp.ones_like, state.params))


def test_decay_is_towards_the_loaded_weights():
    trainer = make_trainer(
        init_transform=LoadOnes(), optimizer=kd.optim.decay_to_init(0.1)
    )
    state = trainer.init_state()
    for leaf in jax.tree.leaves(state.opt_state.init_params):
        np.testing.assert_array_equal(leaf, 1.0)


def test_evaluating_with_the_average_changes_only_the_evaluation(tmp_path):
    optimizer = kd.optim.named_chain(
        sgd=optax.sgd(0.5), ema=kd.optim.ema_params(decay=0.9)
    )

    def final(**kwargs):
        trainer = make_trainer(
            eval_ds=dataclasses.replace(_pipeline(), num_epochs=1),
            optimizer=optimizer,
            **kwargs,
        )
        return trainer, run_steps(trainer, num_steps=3)[0]

    evaluators = {
        "plain": evals.Evaluator(run=evals.EveryNSteps(1)),
        "average": evals.Evaluator(
            run=evals.EveryNSteps(1), init_transform=kd.optim.UseEmaParams()
        ),
    }
    trainer, state = final(evals=evaluators, writer=None)
    values = {
        name: float(e.evaluate(state, step=3).compute().loss_values["losses/l2"])
        for name, e in trainer.evals.items()
    }
    assert values["plain"] != values["average"]
    _, without_evals = final()
    assert _equal(state.params, without_evals.params)


# --------------------------------------------------------------------------------------
# One optimizer per loss
# --------------------------------------------------------------------------------------


class Gan(nn.Module):
    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        discriminator = nn.Dense(1, name="discriminator")
        fake = nn.Dense(4, name="generator")(x)
        return {"fake": discriminator(fake), "real": discriminator(x)}


def _part(name, rate=0.1):
    return kd.optim.partial_update(
        optimizer=optax.sgd(rate), mask=kd.optim.select(name)
    )


def gan_trainer(optimizer=None, **losses):
    losses = {
        "discriminator": kd.losses.L2(preds="preds.real", targets="batch.ones"),
        "generator": kd.losses.L2(preds="preds.fake", targets="batch.ones"),
    } | losses
    return make_trainer(
        model=Gan(),
        train_losses={},
        losses=losses,
        optimizer=optimizer
        or kd.contrib.train.multi_optimizer(
            discriminator=_part("discriminator"), generator=_part("generator")
        ),
        trainstep=kd.contrib.train.MultiTrainStep(),
    )


@pytest.fixture(scope="module")
def gan_step():
    """The state before, the state after and the context of one step."""
    trainer = gan_trainer()
    state = trainer.init_state()
    (batch,) = trainer.train_ds.take(1).device_put()
    return state, *jax.jit(trainer.trainstep._step)(state, batch)


def test_each_loss_moves_its_own_part(gan_step):
    before, after, context = gan_step
    for own, other in (("generator", "discriminator"), ("discriminator", "generator")):
        updates = context.subupdates[own]
        for leaf in jax.tree.leaves(updates[other]):
            np.testing.assert_array_equal(leaf, 0.0)
        assert any(leaf.any() for leaf in jax.tree.leaves(updates[own]))
        expected = optax.apply_updates(before.params[own], updates[own])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
            *(after.params[own], expected),
        )
    # The generator's loss goes through the discriminator, but does not train it.
    gradients = context.subgrads["generator"]["discriminator"]
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients))


def test_three_steps_compile_once():
    trainer = gan_trainer()
    state = trainer.init_state()
    batches = list(trainer.train_ds.take(3).device_put())
    step = trainer.trainstep.step
    before = jax.tree.structure(state.opt_state)
    traces = []
    original = type(trainer.trainstep)._step

    def counted(self, state, batch):
        traces.append(None)
        return original(self, state, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(trainer.trainstep), "_step", counted)
        for batch in batches:
            state, _ = step(state, batch)
    assert len(traces) == 1
    assert jax.tree.structure(state.opt_state) == before
    assert type(state.opt_state) is dict


def test_context_has_one_entry_per_loss_that_add_up(gan_step):
    _, _, context = gan_step
    assert set(context.subgrads) == set(context.subupdates)
    assert set(context.subgrads) == {"discriminator", "generator"}
    for sums, parts in (
        (context.grads, context.subgrads),
        (context.updates, context.subupdates),
    ):
        total = jax.tree.map(lambda *leaves: sum(leaves), *parts.values())
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), sums, total
        )


def test_loss_without_optimizer_is_measured_and_warned_about():
    trainer = gan_trainer(extra=kd.losses.L2(preds="preds.real", targets="batch.y"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, aux = run_steps(trainer, return_losses=True)
    assert any("extra" in str(w.message) for w in caught)
    assert "extra" in aux.loss_states


def test_optimizer_without_loss_names_the_losses():
    optimizer = kd.contrib.train.multi_optimizer(nope=optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"nope.*discriminator, generator"):
        run_steps(gan_trainer(optimizer))


def test_default_step_refuses_a_multi_optimizer():
    trainer = gan_trainer().replace(trainstep=train.TrainStep())
    with pytest.raises(TypeError, match="MultiTrainStep"):
        run_steps(trainer)


def test_multi_step_refuses_a_plain_optimizer():
    with pytest.raises(ValueError, match="multi_optimizer"):
        run_steps(gan_trainer(optax.sgd(0.1)))
