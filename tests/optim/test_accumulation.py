"""A batch computed in parts: the same update within rounding, in less memory."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron import kd, kontext
from kauldron.optim.updates import scan_parts, split_batch
from tests.train.toy import Linear, make_trainer

#
# Parts of a batch
#


def test_each_part_has_records_from_the_whole_batch():
    batch = {"x": np.arange(6)}
    assert split_batch(batch, 3)["x"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_results_are_those_of_the_whole_batch():
    def function(carry, number, batch):
        x = batch["x"]
        rest = {"rows": 2 * x, "second_axis": x.T, "mean": x.mean(), "number": number}
        return carry + x.sum(), x.mean(axis=0), rest

    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    run = jax.jit(lambda x: scan_parts(function, 0.0, {"x": x}, num_parts=3))
    carry, average, rest = run(x)
    assert carry == x.sum()
    np.testing.assert_allclose(average, x.mean(axis=0))
    np.testing.assert_array_equal(rest["rows"], 2 * x)
    np.testing.assert_array_equal(rest["second_axis"], x.T)
    np.testing.assert_allclose(rest["mean"], x.mean())
    assert rest["number"] == 2


def test_sums_of_16_bits_are_kept_in_32():
    def function(carry, number, batch):
        return carry, jnp.bfloat16(1 + 2.0**-7) * batch["x"][0], None

    run = jax.jit(lambda batch: scan_parts(function, None, batch, num_parts=256)[1])
    average = run({"x": np.ones(256, jnp.bfloat16)})
    assert average.dtype == jnp.bfloat16 and average == 1 + 2.0**-7


#
# Train steps
#


def one_step(tmp_path, **changes):
    trainer = make_trainer(tmp_path, checkpointer=None, **changes)
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    return trainer.trainstep.step(
        trainer.init_state(), batch, return_losses=True, return_metrics=True
    )


def test_update_losses_and_metrics_are_those_of_the_whole_batch(tmp_path):
    metrics = {"error": kd.metrics.Norm(tensor="preds.y")}
    results = [
        one_step(tmp_path, num_microbatches=parts, train_metrics=metrics)
        for parts in (1, 4)
    ]
    (whole, whole_aux), (state, aux) = results
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        *(state, whole),
    )
    for name in ("loss_states", "metric_states"):
        for key, value in getattr(whole_aux, name).items():
            np.testing.assert_allclose(
                getattr(aux, name)[key].compute(), value.compute(), rtol=1e-5
            )


def test_parts_have_random_keys_of_their_own_and_statistics_go_on(tmp_path):
    class Noisy(nn.Module):
        x: kontext.Key = kontext.REQUIRED

        @nn.compact
        def __call__(self, x):
            calls = self.variable("calls", "count", jnp.zeros, (), jnp.int32)
            calls.value += 1
            noise = jax.random.uniform(self.make_rng("default"), (len(x), 1))
            return {"y": nn.Dense(2)(x), "noise": noise}

    trainer = make_trainer(
        tmp_path, checkpointer=None, model=Noisy(x="batch.x"), num_microbatches=4,
        train_metrics={},
    )  # fmt: skip
    batch = next(iter(trainer.train_ds.device_put(trainer.sharding.batch)))
    state, context = jax.jit(trainer.trainstep._step)(trainer.init_state(), batch)
    noise = context.preds["noise"]
    assert noise.shape == (16, 1) and len(np.unique(noise)) == 16
    before = int(trainer.init_state().collections["calls"]["count"])
    assert int(state.collections["calls"]["count"]) == before + 4


def test_less_memory_is_needed(tmp_path):
    class Wide(nn.Module):
        x: kontext.Key = kontext.REQUIRED

        @nn.compact
        def __call__(self, x):
            return {"y": nn.Dense(2)(nn.gelu(nn.Dense(256)(x)))}

    def memory(parts):
        trainer = make_trainer(
            tmp_path, model=Wide(x="batch.x"), num_microbatches=parts, train_metrics={}
        )
        batch = {
            name: jax.ShapeDtypeStruct((4096, size), jnp.float32)
            for name, size in {"x": 4, "y": 2}.items()
        }
        step = jax.jit(trainer.trainstep._step, donate_argnums=0)
        compiled = step.lower(trainer.state_specs, batch).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(8) < 0.5 * memory(1)


def test_wrong_numbers_of_parts_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"num_microbatches.*at least 1, got 0"):
        make_trainer(tmp_path, num_microbatches=0)
    trainer = make_trainer(tmp_path, num_microbatches=3)
    with pytest.raises(
        ValueError, match=r"num_microbatches=3.*'x' has shape \(16, 4\)"
    ):
        trainer.context_specs


def test_integer_parameters_stay(tmp_path):
    class Table(nn.Module):
        x: kontext.Key = kontext.REQUIRED

        @nn.compact
        def __call__(self, x):
            order = self.param("order", lambda key: jnp.array([1, 0]))
            return {"y": Linear(name="linear")(x)["y"][:, order]}

    state, _ = one_step(
        tmp_path,
        model=Table(x="batch.x"),
        num_microbatches=2,
        optimizer=optax.sgd(0.1),
        train_metrics={},
    )
    assert state.params["order"].tolist() == [1, 0]


def test_step_with_an_optimizer_per_loss_refuses_parts(tmp_path):
    with pytest.raises(ValueError, match=r"MultiTrainStep.*num_microbatches"):
        make_trainer(
            tmp_path,
            num_microbatches=2,
            trainstep=kd.contrib.train.MultiTrainStep(),
            optimizer=kd.contrib.train.multi_optimizer(l2=optax.sgd(0.1)),
        )
