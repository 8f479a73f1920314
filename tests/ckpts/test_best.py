"""Keeping the best checkpoints."""

import json
import logging
import math
import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron import kd
from kauldron.ckpts import retention
from tests.ckpts.states import assert_equal, make_checkpointer, make_state

PATH = "my_eval.accuracy"


def _save(checkpointer, step, value, **others):
    metrics = {} if value is None else {"my_eval": {"accuracy": value, **others}}
    assert checkpointer.save(make_state(step), step=step, metrics=metrics)
    checkpointer.wait_until_finished()


def _best(workdir, **kwargs):
    kwargs = {"best_metric_path": PATH, "max_to_keep": 2, **kwargs}
    return make_checkpointer(workdir, **kwargs)


def test_best_and_newest_are_there_after_every_save(tmp_path):
    checkpointer = _best(tmp_path)
    kept = []
    for step, value in enumerate([0.5, 0.9, 0.1, 0.7, 0.2]):
        _save(checkpointer, step, value)
        kept.append(checkpointer.all_steps)
    assert kept == [[0], [0, 1], [0, 1, 2], [1, 3], [1, 3, 4]]
    assert checkpointer.best_step == 1
    assert checkpointer.latest_step == 4


def test_lower_can_be_better(tmp_path):
    checkpointer = _best(tmp_path, best_mode="min", max_to_keep=1)
    for step, value in enumerate([0.5, 0.1, 0.9, 0.3]):
        _save(checkpointer, step, value)
    assert checkpointer.all_steps == [1, 3]
    assert checkpointer.best_step == 1


def test_ranking_survives_a_restart_and_resumes_from_the_newest(tmp_path):
    for step, value in enumerate([0.5, 0.9, 0.1]):
        _save(_best(tmp_path), step, value)
    again = _best(tmp_path)
    assert again.best_step == 1
    assert_equal(again.restore(make_state()), make_state(2))
    _save(again, 3, 0.6)
    assert again.all_steps == [1, 3]


def test_of_equal_ones_the_newer_is_better(tmp_path):
    checkpointer = _best(tmp_path, max_to_keep=1)
    for step, value in enumerate([0.5, 0.5, 0.1]):
        _save(checkpointer, step, value)
    assert checkpointer.all_steps == [1, 2]
    assert checkpointer.best_step == 1


def test_what_is_no_number_is_worst(tmp_path):
    checkpointer = _best(tmp_path, max_to_keep=1)
    for step, value in enumerate([math.nan, 0.1, math.nan, 0.05]):
        _save(checkpointer, step, value)
    assert checkpointer.all_steps == [1, 3]
    assert checkpointer.best_step == 1


def test_period_keeps_besides_the_best(tmp_path):
    checkpointer = _best(tmp_path, max_to_keep=1, keep_period=2)
    for step, value in enumerate([0.1, 0.9, 0.2, 0.3]):
        _save(checkpointer, step, value)
    assert checkpointer.all_steps == [0, 1, 2, 3]


def test_no_metric_yet_means_no_best_step(tmp_path, caplog):
    checkpointer = _best(tmp_path)
    assert checkpointer.best_step is None
    _save(checkpointer, 0, None)
    assert checkpointer.best_step is None


def test_best_step_needs_a_metric(tmp_path):
    with pytest.raises(ValueError, match="best_metric_path"):
        make_checkpointer(tmp_path).best_step


def test_save_without_the_metric_warns_once_and_later_saves_work(tmp_path, caplog):
    checkpointer = _best(tmp_path, max_to_keep=1)
    with caplog.at_level(logging.WARNING, "kauldron"):
        _save(checkpointer, 0, 0.4)
        for step in (1, 2):
            metrics = {"other": {"loss": 1.0}}
            assert checkpointer.save(make_state(step), step=step, metrics=metrics)
        _save(checkpointer, 3, 0.5)
    (record,) = caplog.records
    assert PATH in record.message and "other.loss" in record.message
    assert "evaluator" in record.message
    assert checkpointer.all_steps == [3]


def test_path_that_cannot_match_is_an_error_after_the_first_evaluation(tmp_path):
    checkpointer = _best(tmp_path, best_metric_path="my_eval.acuracy")
    with pytest.raises(ValueError, match=r"Did you mean 'my_eval\.accuracy'"):
        checkpointer.save(
            make_state(), step=0, metrics={"my_eval": {"accuracy": 0.5, "loss": 1}}
        )
    checkpointer.close()
    assert checkpointer.all_steps == [0]  # what was to be saved is saved


def test_metric_that_was_there_before_may_be_missing(tmp_path, caplog):
    checkpointer = _best(tmp_path)
    _save(checkpointer, 0, 0.5)
    assert checkpointer.save(make_state(1), step=1, metrics={"my_eval": {"loss": 1.0}})
    assert "no metric" in caplog.text
    checkpointer.close()


def test_losses_of_an_evaluator_can_be_the_metric(tmp_path):
    checkpointer = _best(
        tmp_path, best_metric_path="my_eval.losses.l2", best_mode="min"
    )
    for step, value in enumerate([3.0, 1.0, 2.0]):
        metrics = {"my_eval": {"losses": {"l2": jnp.float32(value)}}}
        checkpointer.save(make_state(step), step=step, metrics=metrics)
    checkpointer.close()
    assert checkpointer.best_step == 1


def test_values_of_all_kinds_are_stored_or_left_out(tmp_path):
    checkpointer = _best(tmp_path)
    others = {
        "numpy": np.float32(0.25),
        "jax": jnp.bfloat16(0.5),
        "vector": jnp.arange(3),
        "flag": True,
        "text": "fine",
        "image": np.zeros((64, 64, 3)),
        "object": object(),
        "nested": {"deep": np.int64(7)},
    }
    _save(checkpointer, 0, jnp.asarray(0.75), **others)
    stored = json.loads((tmp_path / "checkpoints/ckpt_0/metrics/metrics").read_text())
    assert stored["my_eval"] == {
        "accuracy": 0.75,
        "numpy": 0.25,
        "jax": 0.5,
        "vector": [0, 1, 2],
        "flag": True,
        "text": "fine",
        "nested": {"deep": 7},
    }


def test_light_opening_does_not_keep_earlier_best_ones(tmp_path):
    for step, value in enumerate([0.9, 0.1]):
        _save(_best(tmp_path, max_to_keep=1), step, value)
    light = _best(tmp_path, max_to_keep=1, lightweight_initialize=True)
    _save(light, 2, 0.2)
    assert light.all_steps == [2]


def test_metrics_are_not_stored_if_nothing_asks_for_them(tmp_path):
    checkpointer = make_checkpointer(tmp_path)
    _save(checkpointer, 0, 0.5)
    assert not (tmp_path / "checkpoints/ckpt_0/metrics").exists()


#
# The rule
#

_VALUES = st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0, math.nan]), max_size=6)


@given(_VALUES, st.integers(0, 4), st.sampled_from(["max", "min"]), st.booleans())
def test_kept_are_never_worse_than_deleted(values, n, mode, keep_without):
    infos = [
        retention.StepInfo(step, metrics=None if v is None else {"m": v})
        for step, v in enumerate(values)
    ]
    policy = retention.BestByPath(
        metric_path="m", n=n, mode=mode, keep_without_metric=keep_without
    )
    flags = policy.should_preserve(infos)
    measured = [step for step, v in enumerate(values) if v is not None]
    kept = [step for step in measured if flags[step]]
    assert len(kept) == min(n, len(measured))
    ranks = [retention.rank_metric(v, mode=mode) for v in values]
    dropped = [step for step in measured if step not in kept]
    assert all((ranks[a], a) > (ranks[b], b) for a in kept for b in dropped)
    assert all(flags[s] == keep_without for s, v in enumerate(values) if v is None)
    deleted = retention.steps_to_delete([policy], infos)
    assert len(infos) - 1 not in deleted
    assert set(deleted) == {s for s in range(len(infos) - 1) if not flags[s]}


#
# In a trainer's config
#


def _trainer(tmp_path, run, num_steps=10, **kwargs):
    from tests.train.toy import make_ds, make_trainer

    evals = {"my_eval": kd.evals.Evaluator(run=run, num_batches=1)}
    checkpointer = kd.ckpts.Checkpointer(save_interval_steps=4, **kwargs)
    return make_trainer(
        tmp_path,
        checkpointer=checkpointer,
        eval_ds=make_ds(),
        evals=evals,
        num_train_steps=num_steps,
    )


@pytest.mark.parametrize(
    "run", [kd.evals.Once(3), kd.evals.StandaloneEveryCheckpoint()]
)
def test_training_warns_if_evaluations_and_saves_never_meet(tmp_path, run):
    trainer = _trainer(tmp_path, run, num_steps=4, best_metric_path="my_eval.norm")
    with pytest.warns(UserWarning, match="never runs in the training job"):
        trainer.train()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("run", [kd.evals.EveryNSteps(6), kd.evals.Once(10)])
def test_training_does_not_warn_if_they_meet(tmp_path, run):
    trainer = _trainer(tmp_path, run, best_metric_path="my_eval.norm")
    assert kd.train.problems.find_all(trainer) == []


class Stopping(kd.evals.EvaluatorBase):
    """Presses Ctrl-C."""

    def evaluate(self, state, step):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stopped_at", [3, 4], ids=["at a saved step", "between them"])
def test_interrupted_run_does_not_warn_of_the_metric(tmp_path, caplog, stopped_at):
    trainer = _trainer(
        tmp_path, kd.evals.EveryNSteps(4), best_metric_path="my_eval.losses.l2"
    )
    stopping = Stopping(run=kd.evals.Once(stopped_at))
    trainer = trainer.replace(
        evals={**trainer.evals, "stopping": stopping}, log_metrics_every=1
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.checkpointer.latest_step == stopped_at + 1
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
