"""Evaluating a model by training a readout on it."""

import functools
import json
import pathlib
import signal

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron import kd, konfig, kontext, writers
from tests.evals.experiments import eval_data, make_cfg, points, steps
from tests.train.toy import Linear, make_ds, make_trainer

with konfig.imports():
    import optax as optax_cfg

    from kauldron import kd as kd_cfg
    from tests.contrib.evals import readout_model


class Readout(nn.Module):
    """A linear layer on what a frozen model gives."""

    model: nn.Module
    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        features = jax.lax.stop_gradient(self.model(x)["y"])
        return {"y": nn.Dense(2, name="head")(features)}


# Some steps of it are logged, and others not.
LONG = {"num_train_steps": 20, "log_metrics_every": 10}


def readout_trainer(**changes):
    """The inner experiment, as objects."""
    measured = kd.evals.Evaluator(
        run=kd.evals.Once(0),
        metrics={"error": kd.metrics.Norm(tensor="preds.y")},
        ds=make_ds(shuffle=False, num_epochs=1),
    )
    kwargs = {
        "model": Readout(model=Linear()),
        "num_train_steps": 4,
        "log_metrics_every": 1,
        "optimizer": kd.optim.partial_updates(
            optax.adam(3e-2), mask=kd.optim.select("head")
        ),
        "train_metrics": {},
        "checkpointer": None,
        "evals": {"test": measured},
        **changes,
    }
    return make_trainer("", **kwargs)


def make(tmp_path, *, inner=None, every=2, trainer=None, **kwargs):
    evaluator = kd.contrib.evals.TrainEvaluator(
        run=kd.evals.EveryNSteps(every),
        readout_config=inner or readout_trainer(),
        **kwargs,
    )
    outer = {"num_train_steps": 4, "evals": {"probe": evaluator}, **(trainer or {})}
    return make_trainer(tmp_path, **outer)


def test_readout_learns_at_each_evaluation_and_compiles_once(tmp_path):
    compiled = []

    def on_event(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(kwargs.get("fun_name")))

    trainer = make(tmp_path, inner=readout_trainer(**LONG))
    plain, _ = make_trainer(tmp_path / "plain", num_train_steps=4).train()
    jax.monitoring.register_event_duration_secs_listener(on_event)
    try:
        state, _ = trainer.train()
    finally:
        jax.monitoring.clear_event_listeners()
    jax.tree.map(np.testing.assert_array_equal, state, plain)  # left alone
    assert steps(tmp_path, "probe.test", "metrics/error") == [0, 2, 4]
    assert steps(tmp_path, "probe.test") == []  # no losses
    for step in (0, 2, 4):
        curve = points(tmp_path, f"probe.train.{step}")
        assert [at for at, _ in curve] == [0, 10, 19]
        assert curve[-1][1] < curve[0][1]
    # At most two variants of both train steps, and one of the inner evaluation.
    assert len([name for name in compiled if "step" in name]) <= 5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The trainer of a run that has evaluated its first state; it is alone in a folder."""
    trainer = make(tmp_path_factory.mktemp("alone") / "run", every=100)
    trainer.train()
    return trainer


def test_result_holds_the_inner_metrics(run):
    output = run.evals["probe"].evaluate(run.init_state(), 7)
    *_, (step, error) = points(run.workdir, "probe.test", "metrics/error")
    assert step == 7
    assert output.metric_values == {"test": {"error": error}}


def test_trainer_of_one_evaluation_starts_with_the_outer_parameters(tmp_path):
    trainer = make(
        tmp_path,
        inner=readout_trainer(**LONG),
        stop_after_steps_schedule_fn=lambda step, default: default - step,
    )
    evaluator, state = trainer.evals["probe"], trainer.init_state()
    readout = evaluator.readout_trainer_for_step(state, 4)
    base = evaluator.readout_trainer_base
    assert base.workdir == trainer.workdir / "train_evals.probe"
    assert readout.workdir == base.workdir / "_probe_4"
    assert (readout.num_train_steps, readout.stop_after_steps) == (20, 16)
    assert readout.trainstep is base.trainstep  # compiled once for all
    inner = readout.init_state().params["model"]
    jax.tree.map(np.testing.assert_array_equal, inner, state.params)


def test_weights_of_the_outer_model_are_those_of_the_evaluated_state(tmp_path):
    seen = []

    class Weights(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            seen.append(jax.device_get(state.params))

    inner = readout_trainer(evals={"w": Weights(run=kd.evals.Once(0))})
    trainer = make(tmp_path, inner=inner)
    state = trainer.init_state()
    trainer.evals["probe"].evaluate(state, 0)
    other = state.replace(
        params=jax.tree.map(lambda leaf: np.asarray(leaf) + 1, state.params)
    )
    trainer.evals["probe"].evaluate(other, 1)
    for expected, params in zip((state, other), seen):
        jax.tree.map(np.testing.assert_array_equal, params["model"], expected.params)


def test_number_of_steps_follows_the_schedule(tmp_path):
    schedule = functools.partial(
        kd.contrib.evals.linear_stop_after_steps_schedule_fn,
        ramp_up_for_num_pre_training_steps=8,
    )
    make(tmp_path, every=4, stop_after_steps_schedule_fn=schedule).train()
    assert steps(tmp_path, "probe.train.0") == [0]
    assert steps(tmp_path, "probe.train.4") == [0, 1]


def test_other_parameters_than_those_of_the_model_are_refused(tmp_path):
    trainer = make(tmp_path, subparams_to_swap_path="model.head")
    with pytest.raises(ValueError, match=r"(?s)'model\.head'.*dense\.kernel"):
        trainer.evals["probe"].evaluate(trainer.init_state(), 0)


def test_path_that_does_not_exist_is_refused(tmp_path):
    trainer = make(tmp_path, submodule_to_swap_path="model.backbone")
    with pytest.raises(KeyError, match="backbone"):
        trainer.evals["probe"].evaluate(trainer.init_state(), 0)


def test_interrupted_readout_continues_with_its_own_checkpoint(tmp_path):
    seen = []

    def stop_once(batch):
        seen.append(1)
        if len(seen) == 11:
            signal.raise_signal(signal.SIGTERM)
        return batch

    inner = readout_trainer(
        train_ds=make_ds().map(stop_once),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=100),
        **LONG,
    )
    trainer = make(tmp_path, inner=inner, every=4)
    with pytest.raises(kd.train.Preempted):
        trainer.train()
    folder = tmp_path / "train_evals.probe/_probe_0/checkpoints"
    assert {p.name for p in folder.iterdir()} > {"ckpt_0"}
    assert trainer.checkpointer.latest_step == 0  # the outer run saved itself too
    trainer.train()
    assert steps(tmp_path, "probe.train.0") == [0, 10, 19]
    assert steps(tmp_path, "probe.test", "metrics/error") == [0, 4]
    lines = writers.read_scalars(tmp_path / "probe.train.4")
    assert [line["step"] for line in lines if "losses/l2" in line["values"]] == [
        0,
        10,
        19,
    ]


#
# In a config
#


def test_config_of_the_outer_model_is_put_into_that_of_the_readout(tmp_path):
    inner = make_cfg(
        "",
        model=readout_model.Readout(
            model=kd_cfg.nn.Identity(), readout_inputs="batch.y"
        ),
        num_train_steps=3,
        log_metrics_every=1,
        optimizer=optax_cfg.sgd(learning_rate=0.01),
        checkpointer=None,
        train_metrics={},
        evals={
            "test": kd_cfg.evals.Evaluator(
                run=kd_cfg.evals.Once(0),
                ds=eval_data(),
                metrics={"error": kd_cfg.metrics.Norm(tensor="preds.y")},
            )
        },
    )
    cfg = make_cfg(tmp_path, num_train_steps=2)
    cfg.aux = {"rate": 0.5}
    cfg.model.rate = cfg.ref.aux.rate  # a reference, outside of the model
    cfg.evals = {
        "probe": kd_cfg.contrib.evals.TrainEvaluator(
            run=kd_cfg.evals.EveryNSteps(2),
            readout_config=inner,
            overrides={"x": "batch.other"},
            readout_inputs="batch.x",
        )
    }
    trainer = konfig.resolve(cfg)
    readout = trainer.evals["probe"].readout_trainer_base
    assert readout.model.model == Linear(x="batch.other", rate=0.5)
    assert readout.model.readout_inputs == "batch.x"
    trainer.train()
    assert steps(tmp_path, "probe.test", "metrics/error") == [0, 2]
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["evals"]["probe"]["readout_config"]["num_train_steps"] == 3


def test_test_of_the_run_trains_its_readout_elsewhere(run):
    folder = pathlib.Path(run.workdir).parent
    before = sorted(folder.rglob("*"))
    values = run.test("probe")["probe"].metric_values
    assert values["test"]["error"] > 0
    assert sorted(folder.rglob("*")) == before
    run.test("probe", write_to=folder / "again")
    assert steps(folder / "again", "probe.test", "metrics/error") == [4]
    assert [at for at, _ in points(folder / "again", "probe.train.4")] == [0, 1, 2, 3]
    inside = [path for path in sorted(folder.rglob("*")) if path not in before]
    assert all((folder / "again") in (p, *p.parents) for p in inside)
