"""Pieces of code as people write them in their experiments: they must run unchanged."""

import dataclasses
import itertools
import json
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron import kd, konfig, main, writers
from tests.train.toy import make_arrays, make_trainer

# A config file: a dense layer that learns y = x W.
CONFIG = """
from kauldron import konfig

with konfig.imports():
    import optax
    from kauldron import kd
    from tests.train import toy


def config():
    cfg = kd.train.Trainer()
    cfg.seed = 42
    cfg.train_ds = kd.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16)
    cfg.model = toy.Linear(x="batch.x")
    cfg.train_loss = kd.losses.L2(preds="preds.y", targets="batch.y")
    cfg.optimizer = optax.adam(learning_rate=1e-2)
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=2)
    cfg.evals = {
        "along": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(2), num_batches=1, ds=cfg.ref.train_ds
        ),
        "first": kd.evals.Evaluator(
            run=kd.evals.Once(0), num_batches=1, ds=cfg.ref.train_ds
        ),
        "every": kd.evals.Evaluator(
            run=kd.evals.StandaloneEveryCheckpoint(), num_batches=1, ds=cfg.ref.train_ds
        ),
        "last": kd.evals.Evaluator(
            run=kd.evals.StandaloneLastCheckpoint(), num_batches=1, ds=cfg.ref.train_ds
        ),
    }
    cfg.num_train_steps = 1000
    cfg.log_metrics_every = 2
    cfg.profiler = None
    return cfg
"""

# Another one, for looking at the run of the first.
EVAL_CONFIG = """
from kauldron import konfig

with konfig.imports():
    from kauldron import kd
    from tests.train import toy


def make_test_ds():
    return kd.data.py.Arrays(
        toy.make_arrays, shuffle=False, num_epochs=1, batch_size=16
    )


def get_config():
    return kd.train.Trainer.eval_only(
        evals={
            "my_eval": kd.evals.Evaluator(
                run=kd.evals.StandaloneLastCheckpoint(),
                num_batches=None,
                ds=make_test_ds(),
            ),
        },
    )
"""


def _steps(workdir, collection):
    lines = writers.read_scalars(pathlib.Path(workdir) / collection)
    return [line["step"] for line in lines if "losses/loss" in line["values"]]


#
# From the command line
#


def test_config_is_trained_and_evaluated_by_commands(tmp_path):
    (tmp_path / "my_config.py").write_text(CONFIG)
    (tmp_path / "eval_cfg.py").write_text(EVAL_CONFIG)
    cfg, run = f"--cfg={tmp_path}/my_config.py", f"{tmp_path}/run1"
    workdir = f"--cfg.workdir={run}"
    assert main.main([cfg, workdir, "--cfg.num_train_steps=4"]) == 0
    assert _steps(run, "train") == [0, 2, 3]
    assert _steps(run, "along") == [0, 2, 4] and _steps(run, "first") == [0]
    assert json.loads((tmp_path / "run1/config.json").read_text())["seed"] == 42

    assert main.main([cfg, workdir, "--eval_names=every,last"]) == 0
    assert _steps(run, "every")[-1] == 4 and _steps(run, "last") == [4]

    flags = [f"--cfg.aux.workdir={run}", f"--cfg.workdir={run}_eval"]
    assert main.main([f"--cfg={tmp_path}/eval_cfg.py", *flags]) == 0
    assert _steps(f"{run}_eval", "my_eval") == [4]


#
# The trainer as an object
#


def test_trainer_with_only_a_workdir(tmp_path):
    with kd.konfig.mock_modules():
        cfg = kd.train.Trainer()
    cfg.workdir = str(tmp_path)
    trainer = kd.konfig.resolve(cfg)
    assert isinstance(trainer, kd.train.Trainer)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trainer.seed = 1
    with pytest.raises(ValueError, match=r"`trainer.\w+` is not set; set `cfg\.\w+ ="):
        trainer.init_state()


@pytest.mark.filterwarnings("ignore:.*ds. is now called")
def test_loop_of_ones_own(tmp_path):
    trainer = make_trainer(tmp_path, train_ds=_one_epoch())
    state = trainer.init_state()
    for batch in trainer.train_ds.device_put(trainer.sharding.ds):
        state, aux = trainer.trainstep.step(state, batch)
    assert int(state.step) == 4
    assert aux.compute().loss_values == {}


@pytest.mark.parametrize("sharding", [(), (kd.sharding.FIRST_DIM,)])
def test_batches_on_the_devices(sharding):
    batch = next(iter(_one_epoch().device_put(*sharding)))
    assert batch["x"].sharding == kd.sharding.FIRST_DIM
    np.testing.assert_array_equal(batch["x"], make_arrays()["x"][:16])


def test_loop_that_evaluates_and_restores_by_hand(tmp_path):
    evals = {
        "eval": kd.evals.Evaluator(
            run=kd.evals.EveryNSteps(2), num_batches=1, ds=_one_epoch()
        )
    }
    trainer = make_trainer(tmp_path, num_train_steps=4, evals=evals)
    trained, _ = trainer.train()
    state = trainer.checkpointer.restore(trainer.init_state())
    jax.tree.map(np.testing.assert_array_equal, state, trained)
    state = trainer.checkpointer.restore(trainer.init_state(), step=-1)
    aux = trainer.evals["eval"].evaluate(state=state, step=int(state.step))
    assert set(aux.compute().loss_values) == {"losses/l2", "losses/total"}


def _one_epoch():
    return kd.data.py.Arrays(make_arrays(), shuffle=False, num_epochs=1, batch_size=16)


#
# Context
#


def test_loss_from_a_context(tmp_path):
    trainer = make_trainer(tmp_path)
    state = trainer.init_state()
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    ctx = kd.train.Context.from_state_and_batch(state=state, batch=batch)
    model_with_aux = trainer.trainstep.model_with_aux
    with pytest.warns(DeprecationWarning, match="forward"):
        loss, ctx = model_with_aux.forward(
            ctx, rngs=trainer.rng_streams.train_rngs(state.step), is_training=True
        )
    np.testing.assert_allclose(loss, ctx.loss_total)
    np.testing.assert_allclose(
        loss, jnp.mean((ctx.preds["y"] - batch["y"]) ** 2), rtol=1e-5
    )
    assert set(ctx.loss_states) == {"l2"}
    assert {"step", "batch.x", "preds.y", "params.dense.kernel"} <= set(ctx.flatten())


#
# Random streams
#


def test_streams_of_a_config(tmp_path):
    with konfig.mock_modules():
        cfg = kd.train.Trainer()
        cfg.rng_streams = kd.train.RngStreams(
            [
                kd.train.RngStream("dropout", train=False, eval=True),
                kd.train.RngStream("mine"),
            ]
        )
    cfg.workdir = str(tmp_path)
    cfg.seed = 3
    rng_streams = konfig.resolve(cfg).rng_streams
    assert rng_streams.seed == 3
    assert set(rng_streams.init_rngs()) == {"params", "dropout", "default", "mine"}
    assert set(rng_streams.train_rngs()) == {"default", "mine"}
    assert set(rng_streams.eval_rngs()) == {"dropout"}


#
# Models
#


class Net(nn.Module):
    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, x):
        if self.is_training:
            x = x + jax.random.normal(self.make_rng("default"), x.shape)
        return kd.nn.Dropout(0.5)(x)


def test_model_with_a_training_mode():
    x = jnp.ones((2, 3))
    rng_streams = kd.train.RngStreams(seed=0)
    params = Net().init(rng_streams.init_rngs(), x, is_training_property=True)
    y = Net().apply(params, x, is_training_property=False)
    np.testing.assert_array_equal(x, y)

    @jax.jit
    def train(step):
        rngs = rng_streams.train_rngs(step)
        return Net().apply(params, x, rngs=rngs, is_training_property=True)

    outputs = [np.asarray(train(step)) for step in (0, 1, 0)]
    assert not np.array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


class Frozen(nn.Module):
    @nn.compact
    def __call__(self, x):
        with kd.nn.set_train_property(False):
            return Net(name="encoder")(x)


def test_part_of_a_model_in_the_other_mode():
    x = jnp.ones((2, 3))
    y = Frozen().apply({}, x, is_training_property=True)
    np.testing.assert_array_equal(x, y)


#
# Several optimizers
#


class Pair(nn.Module):
    x: kd.kontext.Key = kd.kontext.REQUIRED

    @nn.compact
    def __call__(self, x):
        return {
            "real": nn.Dense(2, name="discriminator")(x),
            "fake": nn.Dense(2, name="generator")(x),
        }


def test_each_loss_has_its_optimizer(tmp_path):
    with konfig.imports():
        import optax

        from kauldron import kd
        from tests.train import test_snippets, toy

    cfg = kd.train.Trainer(
        model=test_snippets.Pair(x="batch.x"),
        train_ds=kd.data.py.Arrays(toy.make_arrays, shuffle=True, batch_size=16),
        losses={
            "discriminator": kd.losses.L2(preds="preds.real", targets="batch.y"),
            "generator": kd.losses.L2(preds="preds.fake", targets="batch.y"),
        },
        trainstep=kd.contrib.train.MultiTrainStep(),
        optimizer=kd.contrib.train.multi_optimizer(
            discriminator=kd.optim.partial_update(
                optimizer=optax.adam(0.1), mask=kd.optim.select("discriminator")
            ),
            generator=kd.optim.partial_update(
                optimizer=optax.set_to_zero(), mask=kd.optim.select("generator")
            ),
        ),
        num_train_steps=40,
        profiler=None,
    )
    cfg.workdir = str(tmp_path)
    trainer = konfig.resolve(cfg)
    first = trainer.init_state().params
    state, _ = trainer.train()
    jax.tree.map(
        np.testing.assert_array_equal, state.params["generator"], first["generator"]
    )
    assert not np.allclose(
        state.params["discriminator"]["kernel"], first["discriminator"]["kernel"]
    )
    losses = [
        line["values"]["losses/discriminator"]
        for line in writers.read_scalars(tmp_path / "train")
        if "losses/discriminator" in line["values"]
    ]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert len(losses) == 2
