"""Optimizers that would do something else than was meant, and those that would not."""

import dataclasses
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from jax.experimental import checkify

from kauldron import kd, kontext, train
from kauldron.optim.problems import find_problems
from tests.optim import test_in_trainer
from tests.optim.test_in_trainer import OneLayer, backtracking, gan_trainer

PARAMS = {
    "encoder": {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)},
    "head": {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)},
    "table": jnp.arange(3),
}


def make_trainer(**kwargs):
    return test_in_trainer.make_trainer(**({"num_train_steps": 1} | kwargs))


def head():
    return kd.optim.select("head")


def ema():
    return kd.optim.ema_params(decay=0.9)


WRONG = {
    "masked alone": (
        lambda: optax.masked(optax.adam(0.1), head()),
        [
            "bare gradients of encoder.bias, encoder.kernel to",
            "kd.optim.partial_updates",
        ],
    ),
    "masked in a chain after clipping": (
        lambda: optax.chain(
            optax.clip_by_global_norm(1.0), optax.masked(optax.sgd(0.1), head())
        ),
        ["bare gradients of encoder.bias, encoder.kernel to"],
    ),
    "masked after clipping each value": (
        lambda: kd.optim.named_chain(
            clip=optax.clip(1.0),
            nans=optax.zero_nans(),
            adam=optax.masked(optax.adamw(0.1), head()),
        ),
        ["bare gradients of encoder.bias, encoder.kernel to"],
    ),
    "masked inside of a condition": (
        lambda: optax.apply_if_finite(optax.masked(optax.sgd(0.1), head()), 3),
        ["bare gradients of encoder.bias, encoder.kernel to"],
    ),
    "mask without a match": (
        lambda: optax.masked(optax.adam(0.1), kd.optim.select("haed")),
        [
            "'haed' of select('haed') matches no",
            "Did you mean 'head'?",
            "bare gradients",
        ],
    ),
    "weight decay of nothing": (
        lambda: optax.adamw(0.1, mask=kd.optim.select("kernle")),
        ["'kernle' of select('kernle') matches no parameter. Did you mean 'kernel'?"],
    ),
    "weight decay of a name that is nowhere": (
        lambda: optax.adamw(0.1, mask=kd.optim.select("embedding")),
        [
            "'embedding' of",
            "Parameters: encoder.bias, encoder.kernel, head.bias, ",
            "1 more",
        ],
    ),
    "exception that is misspelt": (
        lambda: optax.adamw(0.1, mask=kd.optim.exclude(["bais", "kernel"])),
        ["'bais' of exclude(['bais', 'kernel'])", "Did you mean 'bias'?"],
    ),
    "frozen by a misspelt name": (
        lambda: kd.optim.partial_updates(optax.adam(0.1), kd.optim.exclude("encoders")),
        ["'encoders' of exclude('encoders')", "Did you mean 'encoder'?"],
    ),
    "average first": (
        lambda: optax.chain(ema(), optax.adam(0.1)),
        ["`ema_params` averages", "Put it last"],
    ),
    "average before the learning rate": (
        lambda: kd.optim.named_chain(
            adam=optax.scale_by_adam(), ema=ema(), rate=optax.scale(-0.1)
        ),
        ["`ema_params` averages", "Put it last"],
    ),
    "average first in a part": (
        lambda: optax.MultiSteps(
            kd.optim.partial_updates(optax.chain(ema(), optax.sgd(0.1)), head()), 2
        ),
        ["`ema_params` averages", "Put it last"],
    ),
    "average in a part, changed outside": (
        lambda: optax.chain(
            kd.optim.partial_updates(optax.chain(optax.sgd(0.1), ema()), head()),
            optax.scale(0.5),
        ),
        ["`ema_params` averages", "Put it last"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistake_is_found(name):
    make, words = WRONG[name]
    text = "\n".join(m.message for m in find_problems(make(), PARAMS))
    assert not [word for word in words if word not in text], text


RIGHT = {
    "adam": lambda: optax.adam(0.1),
    "ascent": lambda: optax.sgd(-0.1),
    "freezing": lambda: kd.optim.partial_updates(optax.adam(0.1), head()),
    "freezing by zeros": lambda: optax.chain(
        optax.adam(0.1),
        optax.masked(optax.set_to_zero(), kd.optim.exclude("head")),
    ),
    "freezing by zeros at first": lambda: optax.chain(
        optax.masked(optax.set_to_zero(), kd.optim.exclude("head")), optax.adam(0.1)
    ),
    "freezing all": lambda: optax.set_to_zero(),
    "labels": lambda: optax.multi_transform(
        {"a": optax.adam(0.1), "b": optax.set_to_zero(), "c": optax.sgd(-0.1)},
        {"encoder": "a", "head": "b", "table": "c"},
    ),
    "two masks that cover all": lambda: kd.optim.named_chain(
        clip=optax.clip_by_global_norm(1.0),
        encoder=optax.masked(optax.sgd(0.1), kd.optim.select("encoder")),
        others=optax.masked(optax.adamw(0.1), kd.optim.exclude("encoder")),
    ),
    "masked decay": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(0.1, mask=kd.optim.exclude("bias"))
    ),
    "masked parts before the rate": lambda: optax.chain(
        optax.masked(optax.scale_by_adam(), head()),
        kd.optim.decay_to_init(0.1, mask=head()),
        optax.scale_by_learning_rate(0.1),
    ),
    "exceptions that a model may lack": lambda: optax.adamw(
        0.1, mask=kd.optim.exclude(["bias", "scale", "pos_embedding"])
    ),
    "names that a model may lack": lambda: optax.adamw(
        0.1, mask=kd.optim.select(["kernel", "embedding"])
    ),
    "pattern that only another part has": lambda: kd.optim.partial_updates(
        optax.adamw(0.1, mask=kd.optim.select("encoder")), head()
    ),
    "average last": lambda: optax.chain(optax.adam(0.1), ema()),
    "two averages": lambda: kd.optim.named_chain(
        adam=optax.adam(0.1), fast=ema(), slow=kd.optim.ema_params(decay=0.999)
    ),
    "average before what changes nothing": lambda: optax.chain(
        optax.adam(0.1), ema(), optax.identity()
    ),
    "average of a part": lambda: kd.optim.partial_updates(
        optax.chain(optax.adam(0.1), ema()), head()
    ),
    "average inside of several steps": lambda: optax.MultiSteps(
        optax.chain(optax.adam(0.1), ema()), 2
    ),
    "average of finite updates": lambda: optax.apply_if_finite(
        optax.chain(optax.adam(0.1), ema()), 3
    ),
    "average of one of two parts": lambda: optax.multi_transform(
        {"a": optax.chain(optax.adam(0.1), ema()), "b": optax.sgd(0.1)},
        {"encoder": "a", "head": "b", "table": "b"},
    ),
    "line search": lambda: optax.lbfgs(),
    "plateau": lambda: optax.chain(
        optax.adam(0.1), optax.contrib.reduce_on_plateau(patience=2)
    ),
    "adafactor": lambda: optax.adafactor(0.1, weight_decay_mask=head()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_honest_optimizers_raise_no_alarm(name):
    assert [m.message for m in find_problems(RIGHT[name](), PARAMS)] == []


#
# In a trainer
#


def test_training_refuses_bare_gradients(tmp_path):
    optimizer = optax.masked(optax.adam(0.1), head())
    trainer = make_trainer(workdir=tmp_path, optimizer=optimizer, writer=None)
    with pytest.raises(
        ValueError, match=r"cfg.optimizer: .* bare gradients of encoder"
    ):
        trainer.train()


def test_training_warns_about_patterns_and_goes_on(tmp_path):
    optimizer = optax.adamw(0.1, mask=kd.optim.select("kernle"))
    trainer = make_trainer(workdir=tmp_path, optimizer=optimizer, writer=None)
    with pytest.warns(UserWarning, match="cfg.optimizer: 'kernle' of .* 'kernel'"):
        state, _ = trainer.train()
    assert int(state.step) == 1


def test_patterns_are_found_again_when_training_follows_a_check(tmp_path):
    optimizer = kd.optim.partial_updates(optax.adam(0.1), kd.optim.exclude("heda"))
    trainer = make_trainer(workdir=tmp_path, optimizer=optimizer, writer=None)
    train.problems.find_all(trainer)
    with pytest.warns(UserWarning, match="cfg.optimizer: 'heda' of .* 'head'"):
        trainer.train()


def test_each_optimizer_of_several_is_looked_at():
    optimizer = kd.contrib.train.multi_optimizer(
        discriminator=optax.masked(optax.sgd(0.1), kd.optim.select("discriminator")),
        generator=kd.optim.partial_updates(
            optax.sgd(0.1), kd.optim.select("generator")
        ),
    )
    trainer = gan_trainer(optimizer)
    (problem,) = train.problems.find_with_state(trainer, trainer.state_specs)
    assert str(problem).startswith("cfg.optimizer.discriminator: It adds the bare")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Descending(train.TrainStep):
    """Goes down by itself."""

    def _step(self, state, batch):
        state, context = super()._step(state, batch)
        down = jax.tree.map(jnp.subtract, context.params, context.updates)
        return state.replace(params=down), context


def test_a_step_of_ones_own_may_use_gradients_as_they_are():
    optimizer = optax.masked(optax.sgd(0.1), head())
    trainer = make_trainer(optimizer=optimizer, trainstep=Descending())
    assert train.problems.find_with_state(trainer, trainer.state_specs) == []


def test_an_honest_trainer_starts_without_a_warning(tmp_path):
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(0.1, mask=kd.optim.exclude("bias")),
        ema(),
    )
    trainer = make_trainer(workdir=tmp_path, optimizer=optimizer, writer=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer.train()


#
# Losses that train nothing
#


class Stopped(nn.Module):
    """Nothing that it returns can be differentiated."""

    x: kontext.Key = "batch.x"
    stops: bool = True

    @nn.compact
    def __call__(self, x):
        x = jax.lax.stop_gradient(nn.Dense(3, name="encoder")(x))
        x = nn.Dense(1, name="head")(x)
        return jax.lax.stop_gradient(x) if self.stops else x


def test_loss_without_gradients_is_warned_about(tmp_path):
    trainer = make_trainer(workdir=tmp_path, model=Stopped(), writer=None)
    with pytest.warns(UserWarning, match="depend on any parameter.*stop_gradient"):
        trainer.train()


def test_loss_of_several_without_gradients_is_named():
    losses = {"discriminator": kd.losses.L2(preds="batch.y", targets="batch.ones")}
    with pytest.warns(UserWarning, match="loss 'discriminator' does not depend"):
        gan_trainer(**losses).context_specs


HONEST = {
    "frozen encoder": {"model": Stopped(stops=False)},
    "one step at a time": {"steps_per_dispatch": 1},
    "several steps": {"steps_per_dispatch": 2, "num_train_steps": 3},
    "regularisation alone": {
        "train_losses": {"l2": kd.losses.Value(values="params.head.kernel")}
    },
    "line search": {"optimizer": backtracking()},
    "checkify": {"checkify_error_categories": checkify.float_checks},
}


@pytest.mark.parametrize("name", HONEST)
def test_loss_with_gradients_raises_no_alarm(name, tmp_path):
    changes = {"model": OneLayer()} | HONEST[name]
    trainer = make_trainer(workdir=tmp_path, writer=None, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer.train()


#
# `kauldron check`
#


@pytest.mark.parametrize("name", ["line search", "plateau"])
def test_check_knows_what_optimizers_are_given(name):
    trainer = make_trainer(optimizer=RIGHT[name]())
    assert kd.train.problems.find_all(trainer) == []


def test_check_lists_bare_gradients():
    trainer = make_trainer(optimizer=optax.masked(optax.sgd(0.1), head()))
    (problem,) = kd.train.problems.find_all(trainer)
    assert "bare gradients of encoder.bias" in problem.message
