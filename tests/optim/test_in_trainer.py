"""Optimizers at work in a trainer."""

import dataclasses
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import ckpts, data, evals, kd, kontext, train, writers


def _pipeline():
    def load():
        x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
        return {"x": x, "y": x[:, :1], "ones": np.ones((16, 1), np.float32)}

    return data.InMemoryPipeline(loader=load, batch_size=8)


def _dense(size, name):
    """A layer that starts without random numbers: those take long to compile."""
    return nn.Dense(size, kernel_init=nn.initializers.constant(0.5), name=name)


class Linear(nn.Module):
    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return _dense(1, "head")(_dense(3, "encoder")(x))


class OneLayer(nn.Module):
    """For optimizers that are long programs for each parameter."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return _dense(1, "head")(x)


def make_trainer(**kwargs):
    defaults = {
        "train_ds": _pipeline(),
        "model": Linear(),
        "train_losses": {"l2": kd.losses.L2(preds="preds", targets="batch.y")},
        "optimizer": optax.sgd(0.1),
        "num_train_steps": 3,
        "profiler": None,
    }
    return train.Trainer(**defaults | kwargs)


def run_steps(trainer, num_steps=1, **flags):
    state = trainer.init_state()
    batches = list(trainer.train_ds.take(num_steps).device_put())
    for batch in batches:
        state, aux = trainer.trainstep.step(state, batch, **flags)
    return state, aux


def _equal(a, b):
    same = jax.tree.map(np.array_equal, a, b)
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
# Optimizers that need more than gradients
# --------------------------------------------------------------------------------------


def _plateau(**kwargs):
    """Halves its steps whenever the loss is not a tenth of the best one."""
    plateau = optax.contrib.reduce_on_plateau(
        factor=0.5, patience=1, rtol=0.9, accumulation_size=1, **kwargs
    )
    return optax.chain(optax.sgd(0.01), plateau)


PLATEAUS = {
    "alone": (_plateau, 1),
    "named chain": (lambda: kd.optim.named_chain(all=_plateau()), 1),
    "part": (
        lambda: kd.optim.partial_updates(_plateau(), kd.optim.select("kernel")),
        1,
    ),
    "masked": (lambda: optax.masked(_plateau(), lambda p: True), 1),
    "multi-steps": (lambda: optax.MultiSteps(_plateau(), 2), 2),
    "multi-steps as a transformation": (
        lambda: optax.MultiSteps(_plateau(), 2).gradient_transformation(),
        2,
    ),
}


@pytest.mark.parametrize("name", PLATEAUS)
def test_optimizer_sees_the_loss(name):
    make, steps_per_update = PLATEAUS[name]
    trainer = make_trainer(model=OneLayer(), optimizer=make())
    state, _ = run_steps(trainer, num_steps=4 * steps_per_update)
    (scale,) = (
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state.opt_state)
        if getattr(path[-1], "name", None) == "scale"
    )
    assert float(scale) == 0.5**3  # the first loss is the best so far


def test_reduce_on_plateau_trains_a_whole_run(tmp_path):
    trainer = make_trainer(
        workdir=tmp_path,
        model=OneLayer(),
        optimizer=_plateau(),
        num_train_steps=4,
        log_metrics_every=1,
        writer=None,
    )
    state, _ = trainer.train()
    assert float(state.opt_state[1].scale) == 0.5**3


def backtracking():
    """The line search that is compiled fastest."""
    search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=20)
    return optax.lbfgs(memory_size=3, linesearch=search)


LINE_SEARCHES = {
    "all": lambda: optax.lbfgs(memory_size=3),
    "part": lambda: kd.optim.partial_updates(
        backtracking(), kd.optim.exclude("head.bias")
    ),
}


@pytest.mark.parametrize("name", LINE_SEARCHES)
def test_lbfgs_solves_a_linear_problem(name, tmp_path):
    trainer = make_trainer(
        workdir=tmp_path,
        model=OneLayer(),
        optimizer=LINE_SEARCHES[name](),
        train_ds=dataclasses.replace(_pipeline(), batch_size=16),
        num_train_steps=15,
        log_metrics_every=1,
        writer=None,
    )
    state, aux = trainer.train()
    assert float(aux.compute().loss_values["losses/l2"]) < 1e-6
    if name == "part":
        np.testing.assert_array_equal(state.params["head"]["bias"], 0.0)


FIRST = 2**24 + 1  # float32 would round it


class WithTable(OneLayer):
    """Has a table of integers that no gradient reaches."""

    @nn.compact
    def __call__(self, x):
        table = self.param("table", lambda key: FIRST + jnp.arange(2))
        return OneLayer.__call__(self, x) + 0.0 * table[1]


INTEGER_OPTIMIZERS = {
    "adamw": lambda: optax.adamw(0.1, weight_decay=0.5),
    "momentum": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)
    ),
    "average": lambda: kd.optim.named_chain(
        adam=optax.adam(0.1), ema=kd.optim.ema_params(decay=0.9)
    ),
    "multi-steps": lambda: optax.MultiSteps(optax.adam(0.1), 2),
    "part": lambda: kd.optim.partial_updates(optax.adam(0.1), kd.optim.select("head")),
}


@pytest.mark.parametrize("name", INTEGER_OPTIMIZERS)
def test_integer_parameters_stay_as_they_are(name, tmp_path):
    trainer = make_trainer(
        workdir=tmp_path,
        model=WithTable(),
        optimizer=INTEGER_OPTIMIZERS[name](),
        steps_per_dispatch=2,
        log_metrics_every=3,
        train_metrics={
            "norm": kd.metrics.TreeMap(
                metric=kd.metrics.Norm(tensor="grads", axis=None)
            )
        },
        num_train_steps=4,
        writer=None,
    )
    before = trainer.init_state()
    after, aux = trainer.train()
    assert after.params["table"].tolist() == [FIRST, FIRST + 1]
    assert not _equal(before.params["head"], after.params["head"])
    dtypes = [
        jax.tree.map(lambda leaf: leaf.dtype, state.opt_state)
        for state in (before, after)
    ]
    assert dtypes[0] == dtypes[1]
    assert float(aux.compute().metric_values["metrics/norm/table"]) == 0.0


# --------------------------------------------------------------------------------------
# Schedules
# --------------------------------------------------------------------------------------

RATE = optax.linear_schedule(0.0, 0.1, 10)
WEIGHT = optax.linear_schedule(1.0, 2.0, 10)
SCHEDULED = {
    "plain": (lambda: optax.sgd(RATE), [0, 1, 2, 3, 4, 5]),
    "multi-steps": (
        lambda: optax.MultiSteps(optax.adamw(RATE), 3),
        [0, 0, 0, 1, 1, 1],
    ),
    "injected": (
        lambda: optax.MultiSteps(
            optax.inject_hyperparams(optax.sgd)(learning_rate=RATE), 3
        ),
        [0, 0, 0, 1, 1, 1],
    ),
    "counts that differ": (
        lambda: optax.multi_transform(
            {"a": optax.MultiSteps(optax.sgd(RATE), 3), "b": optax.sgd(RATE)},
            {"head": {"kernel": "a", "bias": "b"}},
        ),
        [0, 1, 2, 3, 4, 5],
    ),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_schedules_are_written_at_the_count_of_their_user(name, tmp_path):
    make, counts = SCHEDULED[name]
    loss = kd.losses.L2(preds="preds", targets="batch.y", weight=WEIGHT)
    trainer = make_trainer(
        workdir=tmp_path,
        model=OneLayer(),
        optimizer=make(),
        train_losses={"l2": loss},
        schedules={"nested": {"rate": RATE}, "weight": WEIGHT},
        num_train_steps=6,
        log_metrics_every=1,
    )
    trainer.train()
    lines = [line["values"] for line in writers.read_scalars(tmp_path / "train")]
    lines = [line for line in lines if "schedules/weight" in line]
    rates = [line["schedules/nested/rate"] for line in lines]
    np.testing.assert_allclose(rates, [RATE(n) for n in counts], rtol=1e-5)
    weights = [line["schedules/weight"] for line in lines]
    np.testing.assert_allclose(weights, [WEIGHT(n) for n in range(6)], rtol=1e-5)


# --------------------------------------------------------------------------------------
# One optimizer per loss
# --------------------------------------------------------------------------------------


class Gan(nn.Module):
    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        discriminator = _dense(1, "discriminator")
        fake = _dense(4, "generator")(x)
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
    step = jax.jit(trainer.trainstep._step)
    return jax.device_get((state, *step(state, batch)))


def test_each_loss_moves_its_own_part(gan_step):
    before, after, context = gan_step
    for own, other in (("generator", "discriminator"), ("discriminator", "generator")):
        updates = context.subupdates[own]
        for leaf in jax.tree.leaves(updates[other]):
            np.testing.assert_array_equal(leaf, 0.0)
        assert any(np.any(leaf) for leaf in jax.tree.leaves(updates[own]))
        expected = jax.tree.map(np.add, before.params[own], updates[own])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
            *(after.params[own], expected),
        )
    # The generator's loss goes through the discriminator, but does not train it.
    gradients = context.subgrads["generator"]["discriminator"]
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradients))


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
        gan_trainer(optimizer)


def test_each_optimizer_sees_its_own_loss():
    optimizer = kd.contrib.train.multi_optimizer(
        discriminator=_plateau(), generator=backtracking()
    )
    state, aux = run_steps(gan_trainer(optimizer), num_steps=1, return_losses=True)
    plateau, search = state.opt_state["discriminator"][1], state.opt_state["generator"]
    losses = aux.compute().loss_values
    assert float(plateau.best_value) == losses["losses/discriminator"]
    # The line search found a better point for the generator alone.
    assert float(search[-1].value) < losses["losses/generator"]


def test_default_step_refuses_a_multi_optimizer():
    trainer = gan_trainer().replace(trainstep=train.TrainStep())
    with pytest.raises(TypeError, match="MultiTrainStep"):
        run_steps(trainer)


def test_multi_step_refuses_a_plain_optimizer():
    with pytest.raises(ValueError, match="multi_optimizer"):
        run_steps(gan_trainer(optax.sgd(0.1)))
