"""A long evaluation that continues where it was interrupted."""

import dataclasses
import json
import signal

import jax
import numpy as np
import pytest

from kauldron import kd
from tests.ckpts.states import run_python
from tests.evals.experiments import steps
from tests.train.toy import make_arrays, make_ds, make_trainer

NUM_BATCHES = 8
MEASURED = {
    "metrics": {
        "norm": kd.metrics.Norm(tensor="preds.y"),
        "nested": {"norm": kd.metrics.Norm(tensor="batch.y")},
    },
    "summaries": {"values": kd.summaries.HistogramSummary(tensor="preds.y")},
}


class Interrupted(kd.contrib.evals.CheckpointedEvaluator):
    """Dies before a batch."""

    die_at: tuple = ()

    def checked_step(self, index, state, batch):
        if index in self.die_at[0]:
            self.die_at[0].remove(index)
            raise KeyboardInterrupt
        return super().checked_step(index, state, batch)


class Terminating(kd.contrib.evals.CheckpointedEvaluator):
    """Is asked to stop in a batch."""

    def checked_step(self, index, state, batch):
        if index == 2:
            signal.raise_signal(signal.SIGTERM)
        return super().checked_step(index, state, batch)


def make(tmp_path, cls=kd.contrib.evals.CheckpointedEvaluator, *, ds=None, **kwargs):
    kwargs = {"run": kd.evals.Once(0), **MEASURED, **kwargs}
    if cls is not kd.evals.Evaluator:
        every_3 = kd.ckpts.Checkpointer(save_interval_steps=3)
        kwargs = {"checkpointer": every_3, **kwargs}
    if ds is None:
        ds = make_ds(shuffle=False, num_epochs=1, batch_size=8)
    trainer = make_trainer(tmp_path, eval_ds=ds, evals={"c": cls(**kwargs)})
    return trainer.evals["c"], trainer.init_state()


def values_of(aux):
    output = aux.compute()
    histogram = output.summary_values["summaries/values"].tensor
    return {**output.loss_values, **output.metric_values}, histogram


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a plain evaluator computes."""
    evaluator, state = make(tmp_path_factory.mktemp("plain"), kd.evals.Evaluator)
    return values_of(evaluator.evaluate(state, 0))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Generated(kd.data.Pipeline):
    """Data whose position cannot be saved."""

    def __iter__(self):
        arrays = make_arrays()
        for start in range(0, 64, 8):
            yield {name: array[start : start + 8] for name, array in arrays.items()}


@pytest.mark.parametrize("ds", [None, Generated()], ids=["positioned", "generated"])
def test_interrupted_at_any_batch_it_computes_what_an_evaluator_does(
    tmp_path, expected, ds
):
    deaths = list(range(NUM_BATCHES))
    evaluator, state = make(tmp_path, Interrupted, ds=ds, die_at=(deaths,))
    while deaths:
        with pytest.raises(KeyboardInterrupt):
            evaluator.evaluate(state, 0)
    values, histogram = values_of(evaluator.evaluate(state, 0))
    assert values == expected[0]
    np.testing.assert_array_equal(histogram, expected[1])
    assert [p.name for p in (tmp_path / "evals/c").iterdir()] == ["step_0_done"]
    assert steps(tmp_path, "c") == [0]


def test_position_that_was_not_saved_is_found_by_reading(tmp_path, expected):
    evaluator, state = make(tmp_path, Interrupted, ds=Generated(), die_at=([5],))
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(state, 0)
    positioned, _ = make(tmp_path)
    values, _ = values_of(positioned.evaluate(state, 0))
    assert values == expected[0]


KILLED = """
    import os, signal, sys, time
    from tests.contrib.evals.test_checkpointed_evaluator import Interrupted, make

    class Killed(Interrupted):
        def checked_step(self, index, state, batch):
            if index == 5:
                self.wait()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().checked_step(index, state, batch)

        def wait(self):
            folder = self._folder / "step_0" / "checkpoints" / "ckpt_3"
            deadline = time.monotonic() + 60
            while not folder.exists() and time.monotonic() < deadline:
                time.sleep(0.01)

    evaluator, state = make(sys.argv[1], Killed, die_at=([],))
    evaluator.evaluate(state, 0)
"""


@pytest.mark.slow
def test_killed_process_is_continued_by_another(tmp_path, expected):
    run_python(KILLED, tmp_path, exit_code=-signal.SIGKILL)
    seen = []

    class Recording(kd.contrib.evals.CheckpointedEvaluator):
        def checked_step(self, index, state, batch):
            seen.append(index)
            return super().checked_step(index, state, batch)

    evaluator, state = make(tmp_path, Recording)
    values, histogram = values_of(evaluator.evaluate(state, 0))
    assert seen == [3, 4, 5, 6, 7]
    assert values == expected[0]
    np.testing.assert_array_equal(histogram, expected[1])


def test_what_was_saved_is_not_computed_again(tmp_path):
    seen, deaths = [], [7]

    class Recording(Interrupted):
        def checked_step(self, index, state, batch):
            seen.append(index)
            return super().checked_step(index, state, batch)

    evaluator, state = make(tmp_path, Recording, die_at=(deaths,))
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(state, 0)
    evaluator.checkpointer.close()
    evaluator.evaluate(state, 0)
    assert seen == [*range(8), 6, 7]


def test_asked_to_stop_it_saves_the_batch_it_is_at(tmp_path, expected):
    evaluator, _ = make(tmp_path, Terminating)
    trainer = evaluator.base_cfg.replace(num_train_steps=1)
    with pytest.raises(kd.train.Preempted):
        trainer.train()
    folder = tmp_path / "evals/c/step_0/checkpoints"
    assert [p.name for p in folder.iterdir()] == ["ckpt_3"]
    calm, state = make(tmp_path)
    values, _ = values_of(calm.evaluate(state, 0))
    assert values == expected[0]


def test_done_step_is_skipped_with_the_same_values(tmp_path, expected):
    evaluator, state = make(tmp_path)
    evaluator.evaluate(state, 0)
    other = jax.tree.map(lambda leaf: 0 * leaf, state)  # it is not looked at
    output = evaluator.evaluate(other, 0)
    assert output.loss_values["l2"] == expected[0]["losses/l2"]
    assert output.metric_values["nested"]["norm"] == expected[0]["metrics/nested/norm"]
    assert steps(tmp_path, "c") == [0]
    marker = json.loads((tmp_path / "evals/c/step_0_done").read_text())
    assert marker["metric_values"]["norm"] == expected[0]["metrics/norm"]


def test_test_of_the_run_computes_again_and_leaves_its_folder_alone(tmp_path):
    evaluator, state = make(tmp_path / "run")
    trainer = evaluator.base_cfg
    evaluator.evaluate(state, 0)
    before = sorted(tmp_path.rglob("*"))
    zeros = jax.tree.map(lambda leaf: 0 * leaf, state)
    output = trainer.test("c", state=zeros)["c"]
    assert output.metric_values["metrics/norm"] == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_values_that_were_dropped_from_the_log_are_written_again(tmp_path):
    evaluator, state = make(tmp_path)
    evaluator.evaluate(state, 3)
    evaluator.writer.resume(step=2)  # training went back
    evaluator.writer.flush()
    assert steps(tmp_path, "c") == []
    evaluator.evaluate(state, 3)
    assert steps(tmp_path, "c") == steps(tmp_path, "c", "metrics/nested/norm") == [3]


def test_explicit_workdir_is_kept(tmp_path):
    own = kd.ckpts.Checkpointer(save_interval_steps=2, workdir=str(tmp_path / "own"))
    evaluator, state = make(tmp_path / "run", checkpointer=own)
    evaluator.evaluate(state, 5)
    assert (tmp_path / "own" / "step_5_done").is_file()
    assert not (tmp_path / "run" / "evals").exists()


def test_cache_is_refused(tmp_path):
    with pytest.raises(TypeError, match="cache=True"):
        make(tmp_path, cache=True)


def test_interrupted_evaluation_of_other_metrics_is_refused(tmp_path):
    evaluator, state = make(tmp_path, Interrupted, die_at=([5],))
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(state, 0)
    other, _ = make(tmp_path, metrics={})
    with pytest.raises(ValueError, match=r"evals/c/step_0 holds .* delete it"):
        other.evaluate(state, 0)
