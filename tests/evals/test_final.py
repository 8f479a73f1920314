"""Evaluators that run after the last step of training."""

import json
import signal

import jax
import numpy as np
import pytest

from kauldron import kd
from tests.evals.experiments import points, steps
from tests.train.toy import make_ds, make_trainer

ALL = {"shuffle": False, "num_epochs": 1}
ONLY_THE_LAST = kd.ckpts.Checkpointer(
    save_interval_steps=1000, never_save_step_zero=True
)


class Probe(kd.evals.EvaluatorBase):
    """Keeps what it is given."""

    seen: tuple = ()

    def evaluate(self, state, step):
        self.seen[0].append((state, step))


class Terminating(kd.evals.Evaluator):
    """Is asked to stop in its second batch."""

    def checked_step(self, index, state, batch):
        if index == 1:
            signal.raise_signal(signal.SIGTERM)
        return super().checked_step(index, state, batch)


@pytest.fixture(scope="module", params=[True, False], ids=["freed", "kept"])
def finished(request, tmp_path_factory):
    """A run whose last evaluator frees memory or not: what it and the run end with."""
    seen = []
    final = kd.evals.Final(free_memory=request.param)
    trainer = make_trainer(
        tmp_path_factory.mktemp("finished"),
        evals={"p": Probe(run=final, seen=(seen,), discard_opt=True)},
    )
    state, _ = trainer.train()
    return request.param, seen, state, trainer


def assert_seen_once(seen, saved, last):
    ((state, step),) = seen
    assert step == int(state.step) == int(saved.step) == last
    jax.tree.map(np.testing.assert_array_equal, state.params, saved.params)


def test_it_runs_once_on_the_state_of_the_last_checkpoint(finished):
    _, seen, _, trainer = finished
    saved = trainer.checkpointer.restore(trainer.init_state())
    assert_seen_once(seen, saved, last=10)


def test_it_runs_once_where_the_run_is_to_stop(tmp_path):
    seen = []
    trainer = make_trainer(
        tmp_path,
        stop_after_steps=6,
        evals={"p": Probe(run=kd.evals.Final(), seen=(seen,))},
    )
    trainer.train()
    saved = trainer.checkpointer.restore(trainer.init_state())
    assert_seen_once(seen, saved, last=6)


def test_optimizer_state_is_put_away_only_if_nobody_needs_it(finished):
    free_memory, seen, state, trainer = finished
    assert (seen[0][0].opt_state is None) == free_memory
    saved = trainer.checkpointer.restore(trainer.init_state())
    jax.tree.map(np.testing.assert_array_equal, state, saved)


def test_optimizer_state_stays_for_a_transform_that_reads_it(tmp_path):
    import optax

    evaluator = kd.evals.Evaluator(
        run=kd.evals.Final(), discard_opt=True, init_transform=kd.optim.UseEmaParams()
    )
    make_trainer(
        tmp_path,
        optimizer=optax.chain(optax.adam(0.1), kd.optim.ema_params(decay=0.5)),
        eval_ds=make_ds(**ALL),
        evals={"ema": evaluator},
        checkpointer=ONLY_THE_LAST,
    ).train()
    assert steps(tmp_path, "ema") == [10]


def test_failure_names_evaluator_and_step_and_leaves_the_run_incomplete(tmp_path):
    class Failing(kd.evals.EvaluatorBase):
        def evaluate(self, state, step):
            raise LookupError("nothing there")

    trainer = make_trainer(
        tmp_path,
        evals={"bad": Failing(run=kd.evals.Final(free_memory=False))},
        checkpointer=ONLY_THE_LAST,
    )
    with pytest.raises(LookupError, match="Evaluator bad failed at step 10: nothing"):
        trainer.train()
    assert not (tmp_path / "train_complete.txt").exists()


def test_stopped_between_two_batches_it_runs_at_the_next_start(tmp_path):
    first = kd.evals.Evaluator(run=kd.evals.Final(free_memory=False))
    second = Terminating(run=kd.evals.Final(free_memory=False))
    trainer = make_trainer(
        tmp_path,
        eval_ds=make_ds(**ALL),
        evals={"first": first, "second": second},
        checkpointer=ONLY_THE_LAST,
    )
    with pytest.raises(kd.train.Preempted) as info:
        trainer.train()
    assert info.value.code == 143
    assert not (tmp_path / "train_complete.txt").exists()
    calm = kd.evals.Evaluator(run=kd.evals.Final(free_memory=False))
    trainer.replace(evals={"first": first, "second": calm}).train()
    assert steps(tmp_path, "first") == steps(tmp_path, "second") == [10]
    marker = json.loads((tmp_path / "train_complete.txt").read_text())
    assert marker["final_evals"] == ["first", "second"]


def test_relaunching_runs_only_what_is_new(tmp_path):
    evals = {"a": kd.evals.Evaluator(run=kd.evals.Final(free_memory=False))}
    trainer = make_trainer(
        tmp_path, eval_ds=make_ds(**ALL), evals=evals, checkpointer=ONLY_THE_LAST
    )
    trainer.train()
    more = {**evals, "b": kd.evals.Evaluator(run=kd.evals.Final(free_memory=False))}
    trainer.replace(evals=more).train()
    assert points(tmp_path, "a") == points(tmp_path, "b")
    assert steps(tmp_path, "a") == [10]
