"""What `trainer.train()` does, step by step."""

import functools
import json
import re

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron import kd, kontext, writers
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer


def _points(workdir, collection="train", key="losses/l2"):
    """Logged values of a run by step."""
    lines = writers.read_scalars(workdir / collection)
    return {
        line["step"]: line["values"][key] for line in lines if key in line["values"]
    }


# Saves the first step and the last.
RARELY = kd.ckpts.Checkpointer(save_interval_steps=1000)


def _assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_exactly_num_train_steps_updates_and_the_last_state_is_saved(tmp_path):
    trainer = make_trainer(tmp_path, num_train_steps=10, checkpointer=RARELY)
    state, _ = trainer.train()
    assert int(state.step) == 10
    assert trainer.checkpointer.latest_step == 10
    saved = trainer.checkpointer.restore(trainer.init_state())
    _assert_equal(saved, state)
    assert int(state.opt_state[0].count) == 10


def test_training_lowers_the_loss(tmp_path):
    make_trainer(tmp_path, num_train_steps=200, checkpointer=None).train()
    points = _points(tmp_path)
    assert points[195] < 0.1 * points[0]


def test_values_are_logged_at_multiples_and_at_the_last_update(tmp_path):
    make_trainer(
        tmp_path, num_train_steps=13, log_metrics_every=5, checkpointer=None
    ).train()
    assert list(_points(tmp_path)) == [0, 5, 10, 12]
    assert list(_points(tmp_path, key="metrics/norm")) == [0, 5, 10, 12]


def test_logging_never_means_never(tmp_path):
    make_trainer(
        tmp_path, log_metrics_every=0, log_summaries_every=None, checkpointer=None
    ).train()
    assert _points(tmp_path) == {}


def test_logged_value_belongs_to_the_state_before_the_update(tmp_path):
    trainer = make_trainer(
        tmp_path, num_train_steps=3, log_metrics_every=1, checkpointer=None
    )
    trainer.train()
    kernel = trainer.init_state().params["dense"]["kernel"]
    norm = kd.metrics.Norm(tensor="x").get_state(tensor=kernel).compute()
    assert _points(tmp_path, key="metrics/norm")[0] == pytest.approx(norm, rel=1e-5)


def test_evaluators_run_at_their_steps_including_first_and_last(tmp_path):
    evals = {
        "every": kd.evals.Evaluator(run=kd.evals.EveryNSteps(5), num_batches=1),
        "once": kd.evals.Evaluator(run=kd.evals.Once(3), num_batches=1),
        "final": kd.evals.Evaluator(
            run=kd.evals.Final(free_memory=False), num_batches=1
        ),
    }
    make_trainer(
        tmp_path, num_train_steps=10, eval_ds=make_ds(), evals=evals, checkpointer=None
    ).train()
    assert list(_points(tmp_path, "every")) == [0, 5, 10]
    assert list(_points(tmp_path, "once")) == [3]
    assert list(_points(tmp_path, "final")) == [10]


class Noting(kd.evals.EvaluatorBase):
    """Logs a value, and needs no program."""

    def evaluate(self, state, step):
        self.writer.write_scalars(step, {"losses/l2": 0.0})


def test_last_step_is_evaluated_once_whatever_the_interval(tmp_path):
    class PowersOfTwo(kd.evals.AlongTrain):
        def should_eval_in_train(self, step):
            return step.bit_count() == 1

    evals = {
        "every": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4), num_batches=1),
        "mine": Noting(run=PowersOfTwo()),
        "once": Noting(run=kd.evals.Once(3)),
    }
    changes = {
        "eval_ds": make_ds(),
        "evals": evals,
        "log_metrics_every": None,
        "checkpointer": RARELY,
    }
    make_trainer(tmp_path, num_train_steps=6, **changes).train()
    assert list(_points(tmp_path, "every")) == [0, 4, 6]
    assert list(_points(tmp_path, "mine")) == [1, 2, 4, 6]
    assert list(_points(tmp_path, "once")) == [3]
    # Continued later, it is not evaluated again.
    longer = make_trainer(tmp_path, num_train_steps=9, **changes)
    longer.replace(stop_after_steps=7).train()
    longer.train()
    lines = writers.read_scalars(tmp_path / "every")
    assert [line["step"] for line in lines] == [0, 4, 6, 7, 8, 9]


def test_last_step_can_be_the_best(tmp_path):
    """The loss falls, so that it is the best: it is known when the step is saved."""
    trainer = make_trainer(
        tmp_path,
        num_train_steps=30,
        eval_ds=make_ds(num_epochs=1),
        evals={"val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(20))},
        checkpointer=kd.ckpts.Checkpointer(
            save_interval_steps=20,
            best_metric_path="val.losses.total",
            best_mode="min",
        ),
    )
    trainer.train()
    assert trainer.checkpointer.best_step == 30


def test_stop_after_steps_then_continuing_equals_an_uninterrupted_run(tmp_path):
    whole, _ = make_trainer(
        tmp_path / "whole", num_train_steps=11, checkpointer=RARELY
    ).train()
    half = make_trainer(
        tmp_path / "half", num_train_steps=11, checkpointer=RARELY, stop_after_steps=6
    )
    state, _ = half.train()
    assert int(state.step) == 6 and half.checkpointer.latest_step == 6
    rest, _ = half.replace(stop_after_steps=None).train()
    _assert_equal(rest, whole)
    assert _points(tmp_path / "half") == _points(tmp_path / "whole")


def test_dropout_continues_with_the_keys_of_the_step(tmp_path):
    model = Linear(x="batch.x", rate=0.3)
    whole, _ = make_trainer(
        tmp_path / "whole", model=model, checkpointer=RARELY
    ).train()
    half = make_trainer(
        tmp_path / "half", model=model, checkpointer=RARELY, stop_after_steps=3
    )
    half.train()
    rest, _ = half.replace(stop_after_steps=None).train()
    _assert_equal(rest.params, whole.params)


def test_in_memory_pipeline_resumes_at_its_position(tmp_path):
    ds = kd.data.InMemoryPipeline(loader=make_arrays, shuffle=True, batch_size=16)
    whole, _ = make_trainer(
        tmp_path / "whole", train_ds=ds, checkpointer=RARELY
    ).train()
    half = make_trainer(
        tmp_path / "half", train_ds=ds, checkpointer=RARELY, stop_after_steps=7
    )
    half.train()
    rest, _ = half.replace(stop_after_steps=None).train()
    _assert_equal(rest.params, whole.params)


def test_relaunching_a_finished_run_changes_nothing(tmp_path):
    trainer = make_trainer(tmp_path, checkpointer=RARELY)
    state, _ = trainer.train()
    before = (tmp_path / "train" / "scalars.jsonl").read_bytes()
    again, aux = make_trainer(tmp_path, checkpointer=RARELY).train()
    assert aux is None
    _assert_equal(again, state)
    assert (tmp_path / "train" / "scalars.jsonl").read_bytes() == before


def test_num_train_steps_none_uses_the_finite_data(tmp_path):
    trainer = make_trainer(
        tmp_path,
        num_train_steps=None,
        train_ds=make_ds(num_epochs=2),
        checkpointer=RARELY,
    )
    state, _ = trainer.train()
    assert int(state.step) == 8
    assert trainer.checkpointer.latest_step == 8


def test_checkpoint_at_the_end_of_the_data_has_the_metrics_of_its_step(tmp_path):
    class Unmeasured(kd.data.Pipeline):
        """Does not tell how long it is."""

        def __iter__(self):
            yield from make_ds(num_epochs=1)

    trainer = make_trainer(
        tmp_path,
        num_train_steps=None,
        train_ds=Unmeasured(batch_size=16),
        eval_ds=make_ds(num_epochs=1),
        evals={"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(2))},
        checkpointer=kd.ckpts.Checkpointer(
            save_interval_steps=3, best_metric_path="test.losses.total", best_mode="min"
        ),
    )
    trainer.train()
    assert trainer.checkpointer.best_step == trainer.checkpointer.latest_step == 4


def test_num_train_steps_none_with_endless_data_names_the_ways_out(tmp_path):
    trainer = make_trainer(tmp_path / "run", num_train_steps=None)
    with pytest.raises(
        ValueError, match=r"num_train_steps.*stop_after_steps.*num_epochs"
    ):
        trainer.train()
    assert not (tmp_path / "run").exists()


def test_data_that_ends_early_is_an_error_after_saving(tmp_path):
    trainer = make_trainer(tmp_path, num_train_steps=99, train_ds=make_ds(num_epochs=1))
    with pytest.raises(ValueError, match="step 4 of 99"):
        trainer.train()
    assert trainer.checkpointer.latest_step == 4


def test_zero_steps_initialise_evaluate_and_save(tmp_path):
    seen = []

    class Probe(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            seen.append(step)

    evals = {"probe": Probe(run=kd.evals.EveryNSteps(5))}
    trainer = make_trainer(tmp_path, num_train_steps=0, evals=evals)
    for _ in range(2):  # the second start finds the run complete
        state, aux = trainer.train()
        assert int(state.step) == 0 and aux is None
        assert trainer.checkpointer.latest_step == 0
        assert (tmp_path / "train_complete.txt").exists()
    assert seen == [0]


def test_two_runs_of_one_config_log_identical_values(tmp_path):
    make_trainer(tmp_path / "a", checkpointer=None).train()
    make_trainer(tmp_path / "b", checkpointer=None).train()
    assert _points(tmp_path / "a") == _points(tmp_path / "b")


def test_marker_of_completion_tells_the_step_and_goes_when_training_goes_on(tmp_path):
    make_trainer(tmp_path, num_train_steps=5, checkpointer=RARELY).train()
    marker = json.loads((tmp_path / "train_complete.txt").read_text())
    assert marker == {"step": 5, "num_train_steps": 5, "final_evals": []}
    seen = []

    class Probe(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            seen.append((tmp_path / "train_complete.txt").exists())

    evals = {"probe": Probe(run=kd.evals.Once(6))}
    make_trainer(tmp_path, num_train_steps=7, evals=evals, checkpointer=RARELY).train()
    assert seen == [False]
    assert (tmp_path / "train_complete.txt").exists()


@functools.cache
def _diverging():
    """A trainer whose loss is soon no number; others share its step."""
    return make_trainer(
        "unused", optimizer=optax.sgd(1e30), log_metrics_every=1, checkpointer=RARELY
    )


def test_nonfinite_loss_warns_once_and_goes_on(tmp_path, caplog):
    trainer = _diverging().replace(workdir=str(tmp_path))
    with caplog.at_level("WARNING", logger="kauldron"):
        state, _ = trainer.train()
    assert int(state.step) == 10
    [record] = caplog.records
    assert re.match(
        r"Loss not finite at step \d: losses/l2, losses/total\. Training goes on",
        record.getMessage(),
    )


def test_recovery_of_the_loss_is_told(tmp_path, caplog):
    ds = make_ds(shuffle=False).map(_spoil_third_batch)
    trainer = make_trainer(
        tmp_path, train_ds=ds, optimizer=optax.set_to_zero(), checkpointer=None
    )
    with caplog.at_level("WARNING", logger="kauldron"):
        trainer.replace(log_metrics_every=1, num_train_steps=6).train()
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("Loss not finite at step 2: losses/l2")
    assert told[1] == "All losses are finite again at step 3."
    assert len(told) == 2


def _spoil_third_batch(batch):
    is_third = batch["x"][0, 0] == make_arrays()["x"][32, 0]
    return batch | {"y": batch["y"] * np.nan} if is_third else batch


def test_nonfinite_loss_can_be_ignored(tmp_path, caplog):
    trainer = _diverging().replace(workdir=str(tmp_path), on_nonfinite="ignore")
    with caplog.at_level("WARNING", logger="kauldron"):
        trainer.train()
    assert not caplog.records


def test_nonfinite_loss_can_stop_the_run(tmp_path):
    trainer = _diverging().replace(
        workdir=str(tmp_path), on_nonfinite="raise", num_train_steps=50
    )
    with pytest.raises(FloatingPointError, match=r"step \d+: losses/l2="):
        trainer.train()
    assert not (tmp_path / "train_complete.txt").exists()


def test_checks_name_the_step_that_failed(tmp_path):
    from jax.experimental import checkify

    trainer = make_trainer(
        tmp_path,
        optimizer=optax.sgd(1e30),
        checkify_error_categories=checkify.float_checks,
        num_train_steps=50,
        log_metrics_every=1,  # all steps are one program
        checkpointer=None,
    )
    with pytest.raises(checkify.JaxRuntimeError, match=r"Step \d+: nan"):
        trainer.train()


def test_error_in_the_loop_leaves_what_was_logged_and_saved(tmp_path):
    class Failing(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            raise RuntimeError("out of coffee")

    evals = {"bad": Failing(run=kd.evals.Once(7))}
    trainer = make_trainer(tmp_path, log_metrics_every=1, evals=evals)
    with pytest.raises(RuntimeError, match="Evaluator bad failed at step 7: out of"):
        trainer.train()
    assert list(_points(tmp_path)) == list(range(7))
    assert trainer.checkpointer.latest_step == 4


def test_second_trainer_on_a_workdir_is_refused_with_the_owner(tmp_path):
    class Nested(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            make_trainer(tmp_path).train()

    evals = {"nested": Nested(run=kd.evals.Once(1))}
    with pytest.raises(
        RuntimeError, match=r"Another training job uses .*process \d+ on"
    ):
        make_trainer(tmp_path, evals=evals).train()


def test_at_most_two_compilations_of_the_step(tmp_path):
    compiled = []

    def on_event(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(kwargs.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(on_event)
    try:
        make_trainer(
            tmp_path,
            num_train_steps=40,
            log_metrics_every=3,
            log_summaries_every=7,
            checkpointer=RARELY,
            shares_step=False,
        ).train()
    finally:
        jax.monitoring.unregister_event_duration_listener(on_event)
    steps = [name for name in compiled if name and "step" in str(name)]
    assert 1 <= len(steps) <= 2, compiled


def test_restored_state_does_not_compile_anew(tmp_path):
    make_trainer(tmp_path, stop_after_steps=5, checkpointer=RARELY).train()
    restored = make_trainer(tmp_path, checkpointer=RARELY, shares_step=False)
    state = restored.checkpointer.restore(restored.state_specs)
    fresh = restored.init_state()
    batch = next(iter(restored.train_ds.device_put(restored.sharding.batch)))
    restored.trainstep.step(fresh, batch)
    assert restored.trainstep.step._cache_size() == 1
    restored.trainstep.step(state, batch)
    assert restored.trainstep.step._cache_size() == 1


def test_model_is_traced_once_to_initialise_and_once_for_all_steps(tmp_path):
    class Counting(nn.Module):
        x: kontext.Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            calls.append(x)
            return {"y": nn.Dense(2, name="dense")(x)}

    for num_train_steps in (20, 30):  # started, then resumed
        calls = []
        make_trainer(
            tmp_path,
            model=Counting(),
            num_train_steps=num_train_steps,
            checkpointer=RARELY,
            log_metrics_every=5,  # programs with and without metrics
        ).train()
        assert len(calls) == 2
