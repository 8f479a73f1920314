"""Being asked to stop at awkward moments: saved at the next possible point."""

import dataclasses
import functools
import os
import signal
import threading

import jax
import numpy as np
import pytest

from kauldron import kd, writers
from kauldron.ckpts import step_folders
from kauldron.train.run import preemption
from tests.train.toy import Linear, make_arrays, make_ds, make_trainer

NUM_STEPS = 8


def _ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def _make(workdir, **changes):
    kwargs = {
        "num_train_steps": NUM_STEPS,
        "model": Linear(x="batch.x", rate=0.3),
        "log_metrics_every": 3,
        "eval_ds": EvalData(batch_size=16),
        "evals": {"eval": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4))},
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=100),
    }
    return make_trainer(workdir, **(kwargs | changes))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EvalData(kd.data.Pipeline):
    """Four batches; asks to stop in the middle of the given pass over them."""

    asks_in_pass: int | None = None
    passes: list = dataclasses.field(default_factory=list, compare=False)

    def __iter__(self):
        for index in range(4):
            if index == 2:  # reading the specs does not come so far
                self.passes.append(1)
                if len(self.passes) == self.asks_in_pass:
                    _ask()
            yield {name: array[:16] for name, array in make_arrays().items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsksWhileSaving(kd.ckpts.Checkpointer):
    """Asks to stop as soon as a save was started."""

    at_step: int = 3

    def save(self, state, *, step, **kwargs):
        result = super().save(state, step=step, **kwargs)
        if step == self.at_step:
            _ask()
        return result


class AsksWhileTracing(Linear):
    """Asks to stop while the training step is traced for the first time."""

    def __call__(self, x):
        if not self.is_initializing() and not ASKED:
            ASKED.append(True)
            _ask()
        return super().__call__(x)


ASKED: list = []


def _points(workdir, collection):
    return [
        (line["step"], line["values"]["losses/l2"])
        for line in writers.read_scalars(workdir / collection)
        if "losses/l2" in line["values"]
    ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("undisturbed")
    state, _ = _make(workdir).train()
    return workdir, state


def _assert_continues(workdir, undisturbed):
    """A new start ends as if nothing had happened."""
    state, _ = _make(workdir).train()
    jax.tree.map(np.testing.assert_array_equal, state, undisturbed[1])
    for collection in ("train", "eval"):
        assert _points(workdir, collection) == _points(undisturbed[0], collection)


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        # The second pass: the first one belongs to step 0.
        ({"eval_ds": EvalData(batch_size=16, asks_in_pass=2)}, 4),
        ({"eval_ds": EvalData(batch_size=16, asks_in_pass=3)}, NUM_STEPS),
        ({"checkpointer": AsksWhileSaving(save_interval_steps=3)}, 4),
        ({"model": AsksWhileTracing(x="batch.x", rate=0.3)}, 0),
    ],
    ids=["in an evaluation", "in the last evaluation", "while saving", "while tracing"],
)
def test_asked_at_an_awkward_moment(tmp_path, undisturbed, changes, step):
    trainer = _make(tmp_path, **changes, writer=kd.train.KDMetricWriter())
    with pytest.raises(kd.train.Preempted) as stopped:
        trainer.train()
    assert stopped.value.code == 143
    assert stopped.value.step == trainer.checkpointer.latest_step == step
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "train_complete.txt").exists()
    _assert_continues(tmp_path, undisturbed)


def test_further_requests_are_ignored_while_saving(tmp_path):
    class Impatient(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            _ask(), _ask()

    evals = {"impatient": Impatient(run=kd.evals.Once(2))}
    trainer = _make(tmp_path, evals=evals, writer=None)
    with pytest.raises(kd.train.Preempted) as stopped:
        trainer.train()
    assert stopped.value.step == trainer.checkpointer.latest_step == 3


def test_handler_of_the_application_stays(tmp_path):
    seen = []
    previous = signal.signal(signal.SIGTERM, lambda *args: seen.append(args[0]))
    try:

        class Asking(kd.evals.EvaluatorBase):
            def evaluate(self, state, step):
                _ask()

        evals = {"asking": Asking(run=kd.evals.Once(1))}
        state, _ = _make(
            tmp_path, evals=evals, num_train_steps=2, writer=None, checkpointer=None
        ).train()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert seen == [signal.SIGTERM] and int(state.step) == 2


def test_run_in_another_thread_installs_no_handler(tmp_path):
    results = []

    def run():
        trainer = make_trainer(
            tmp_path,
            num_train_steps=1,
            writer=None,
            checkpointer=None,
            eval_ds=make_ds(),
        )
        results.append(trainer.train()[0])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert int(results[0].step) == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_uncaught_request_ends_the_process_quietly():
    stopped = kd.train.Preempted(7)
    assert isinstance(stopped, SystemExit) and stopped.code == 143
    assert stopped.step == 7 and str(stopped) == "preempted at step 7"


#
# Which checkpoints are kept
#


# Evaluated at these steps; saved at 0, 4 and 8.
SCORES = {0: 0.1, 2: 0.95, 4: 0.9, 6: 0.3, 8: 0.5}


class Scored(kd.evals.EvaluatorBase):
    """Ranks the checkpoints by chosen scores; can be asked to stop before one is known."""

    asks_at: int | None = None

    def evaluate(self, state, step):
        if step == self.asks_at:
            _ask()
            preemption.raise_if_stop_requested()
        return kd.train.AuxiliariesOutput(metric_values={"norm": SCORES[step]})


def _make_ranked(workdir, *, asks_at=None, **options):
    options = {"best_metric_path": "eval.norm", "max_to_keep": 1} | options
    return _make(
        workdir,
        evals={"eval": Scored(run=kd.evals.EveryNSteps(2), asks_at=asks_at)},
        log_metrics_every=None,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=4, **options),
    )


def _kept(trainer):
    """Steps that are kept, and the metrics they are ranked by."""
    folder = trainer.checkpointer.folder
    return {
        step: step_folders.read_metrics(step_folders.step_folder(folder, step))
        for step in trainer.checkpointer.all_steps
    }


KEEPING = {
    "best": {},
    "best two": {"max_to_keep": 2},
    "newest": {"best_metric_path": None, "max_to_keep": 2},
    "period": {"best_metric_path": None, "max_to_keep": 1, "keep_period": 2},
    "all but bad": {
        "preservation_policy": kd.contrib.ckpts.keep_best_n("eval.norm", n=1)
    },
    "checksums": {"checksum": True},
}


@pytest.fixture(scope="module")
def undisturbed_kept(tmp_path_factory):
    """What undisturbed runs keep, by the name of their options."""

    @functools.cache
    def keep(name):
        trainer = _make_ranked(tmp_path_factory.mktemp("whole"), **KEEPING[name])
        trainer.train()
        return _kept(trainer)

    return keep


@pytest.mark.parametrize(
    ("name", "steps"),
    [("best", [2]), ("best", [4]), ("best", [8]), *((n, [2, 4, 8]) for n in KEEPING)],
    ids=str,
)
def test_interrupted_run_keeps_the_checkpoints_of_an_undisturbed_one(
    tmp_path, undisturbed_kept, name, steps
):
    """It is asked to stop in the evaluations of these steps, and started again."""
    for step in steps:
        stopped = _make_ranked(tmp_path, asks_at=step, **KEEPING[name])
        with pytest.raises(kd.train.Preempted):
            stopped.train()
        assert stopped.checkpointer.latest_step == step
    again = _make_ranked(tmp_path, **KEEPING[name])
    again.train()
    assert _kept(again) == undisturbed_kept(name)
    assert again.checkpointer.restore_newest(again.state_specs)[1] == NUM_STEPS
