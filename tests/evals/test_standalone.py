"""Evaluations in a process of their own, on the checkpoints of a run."""

import contextlib
import dataclasses
import json
import shutil
import signal
import threading
import time
import types

import flax.linen as nn
import optax
import pytest

from kauldron import kd, konfig, kontext
from kauldron.evals import standalone as standalone_lib
from kauldron.evals import standalone_files
from kauldron.evals.standalone_files import EvalProgress
from kauldron.train.run.terminal import panel
from tests.evals.experiments import kd as kd_cfg
from tests.evals.experiments import make_cfg, points, resolve, standalone, steps

ONLY_THE_LAST = {"save_interval_steps": 1000, "never_save_step_zero": True}


def train(workdir, **changes):
    """Train with standalone evaluators that did not run yet; gives the trainer."""
    trainer = resolve(make_cfg(workdir, **{"evals": {"e": standalone()}, **changes}))
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run with all its checkpoints; not to be changed."""
    workdir = tmp_path_factory.mktemp("finished")
    checkpointer = kd_cfg.ckpts.Checkpointer(save_interval_steps=4, max_to_keep=None)
    along = kd_cfg.evals.Evaluator(run=kd_cfg.evals.EveryNSteps(2))
    evals = {"e": standalone(), "along": along}
    train(workdir, checkpointer=checkpointer, evals=evals)
    return workdir


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the run of each test is."""
    return tmp_path_factory.mktemp("runs") / "run"


@pytest.fixture
def run(finished, place):
    """A copy of the complete run, always in the same place."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(finished, place)
    return place


def trainer_of(workdir, **changes):
    cfg = kd.from_workdir.get_cfg(workdir)
    cfg.workdir = str(workdir)
    for name, value in changes.items():
        cfg[name] = value
    return resolve(cfg)


@pytest.fixture(scope="module")
def shared_trainer(finished, place):
    """Evaluates in the place of all runs: its evaluators are compiled once."""
    evals = {
        "e": standalone(),
        "all": standalone(skip_missed=False),
        "limited": standalone(timeout_secs=0.1),
        "a": standalone(job_group="g"),
        "b": standalone(job_group="g", every=False),
    }
    return trainer_of(finished, evals=evals).replace(workdir=str(place))


@pytest.fixture
def trainer(shared_trainer, run):
    """A trainer for the run of this test."""
    return shared_trainer


@contextlib.contextmanager
def in_background(function, *args):
    """Runs a function in a thread, and waits for it; gives what it returns or raises."""
    outcome = {}

    def call():
        try:
            outcome["result"] = function(*args)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(timeout=60)
        assert not thread.is_alive()


#
# Following
#


def test_evaluator_started_before_training_ends_with_the_last_checkpoint(tmp_path):
    cfg = make_cfg(tmp_path, evals={"e": standalone()}, num_train_steps=22)
    with in_background(resolve(cfg).continuous_eval, "e") as outcome:
        resolve(cfg).train()
    assert "error" not in outcome, outcome
    evaluated = steps(tmp_path, "e")
    assert evaluated == sorted(set(evaluated))
    assert evaluated[-1] == 22 and set(evaluated) <= {*range(0, 22, 4), 22}
    value = outcome["result"]["e"].compute().loss_values["losses/l2"]
    assert points(tmp_path, "e")[-1] == (22, value)


def test_after_training_only_the_last_checkpoint_is_evaluated(run):
    result = trainer_of(run).continuous_eval(["e"])
    assert steps(run, "e") == [10] and list(result) == ["e"]


def test_every_checkpoint_in_order_and_with_the_values_of_training_if_none_may_be_missed(
    run, trainer
):
    trainer.continuous_eval("all")
    expected = dict(points(run, "along"))
    assert points(run, "all") == [(step, expected[step]) for step in (0, 4, 8, 10)]


def test_nothing_of_the_run_itself_is_touched(run, trainer):
    def content():
        paths = [run / "config.json", run / "element_spec.json"]
        paths += (run / "checkpoints").rglob("*")
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in paths}

    before = content()
    trainer.continuous_eval("e")
    assert content() == before
    new = {p.name for p in run.iterdir()} - {"checkpoints", "train", "train.lock"}
    new -= {"along"}
    new -= {"config.json", "element_spec.json", "run_info.json", "train_complete.txt"}
    assert new == {"e", "_eval_e"}


def test_last_checkpoint_evaluators_wait_for_the_end_and_restore_once(
    tmp_path, monkeypatch
):
    loaded = []
    load = standalone_files.OwnRun.load
    monkeypatch.setattr(
        standalone_files.OwnRun,
        "load",
        lambda self, step, **kwargs: (loaded.append(step), load(self, step, **kwargs))[
            1
        ],
    )
    cfg = make_cfg(tmp_path, evals={"l": standalone(every=False)})
    resolve(cfg).replace(stop_after_steps=5).train()
    (tmp_path / "train_complete.txt").unlink()
    with in_background(resolve(cfg).continuous_eval, "l") as outcome:
        resolve(cfg).train()
    assert "error" not in outcome, outcome
    assert loaded == [10] and steps(tmp_path, "l") == [10]


def test_training_that_goes_on_later_is_followed_again(tmp_path):
    for num_steps in (5, 9):
        checkpointer = kd_cfg.ckpts.Checkpointer(**ONLY_THE_LAST)
        trainer = train(tmp_path, num_train_steps=num_steps, checkpointer=checkpointer)
        trainer.continuous_eval("e")
    assert steps(tmp_path, "e") == [5, 9]


def test_restarted_training_leaves_the_values_of_standalone_evaluators_alone(tmp_path):
    trainer = resolve(make_cfg(tmp_path, evals={"e": standalone()}))
    trainer.replace(stop_after_steps=8).train()
    trainer.continuous_eval("e")
    shutil.rmtree(tmp_path / "checkpoints" / "ckpt_8")  # it goes back to step 4
    trainer.train()
    trainer.continuous_eval("e")
    assert steps(tmp_path, "e") == [8, 10]


#
# Groups and names
#


def test_group_runs_together_and_others_do_not(run, trainer):
    result = trainer.continuous_eval("g")
    assert list(result) == ["a", "b"]
    assert steps(run, "a") == steps(run, "b") == [10]
    assert not (run / "e").exists()
    assert json.loads((run / "_eval_g/progress.json").read_text()) == {"a": 10, "b": 10}


def test_folder_is_named_after_the_evaluators_or_a_digest_of_many(run):
    names = [f"evaluator_number_{i}" for i in range(9)]
    every = kd.evals.StandaloneEveryCheckpoint()
    evals = {name: StateProbe(run=every, seen=([],)) for name in names}
    trainer = trainer_of(run).replace(evals=evals)
    trainer.continuous_eval(names[:2])
    assert (run / "_eval_evaluator_number_0+evaluator_number_1").is_dir()
    trainer.continuous_eval(names)
    (folder,) = {p.name for p in run.glob("_eval_*")} - {
        "_eval_evaluator_number_0+evaluator_number_1"
    }
    assert len(folder) == len("_eval_") + 8


@pytest.mark.parametrize(
    "names, message",
    [
        ("nope", r"'nope'.*Evaluators: e, along, g1.*Job groups: g"),
        (["e", "along"], r"'along'.*EveryNSteps\(n=3.*Standalone evaluators: e, g1"),
        ([], "No evaluator"),
    ],
)
def test_names_that_cannot_be_evaluated(run, names, message):
    evals = {
        "e": standalone(),
        "along": kd_cfg.evals.Evaluator(run=kd_cfg.evals.EveryNSteps(3)),
        "g1": standalone(job_group="g"),
    }
    with pytest.raises(ValueError, match=message):
        trainer_of(run, evals=evals).continuous_eval(names)


def test_without_checkpoints_there_is_nothing_to_follow(tmp_path):
    trainer = konfig.resolve(
        make_cfg(tmp_path, evals={"e": standalone()}, checkpointer=None)
    )
    with pytest.raises(ValueError, match=r"cfg\.checkpointer"):
        trainer.continuous_eval("e")


def test_without_workdir_the_flag_is_named():
    trainer = konfig.resolve(make_cfg("", evals={"e": standalone()}))
    with pytest.raises(ValueError, match=r"--cfg\.workdir="):
        trainer.continuous_eval("e")


#
# Waiting
#


def test_dead_training_ends_in_a_timeout_that_says_what_was_awaited(tmp_path, caplog):
    evals = {"e": standalone(timeout_secs=0.1)}
    trainer = konfig.resolve(make_cfg(tmp_path / "run", evals=evals))
    with (
        caplog.at_level("INFO", logger="kauldron"),
        pytest.raises(TimeoutError, match=r"0\.1 seconds.*run/element_spec\.json"),
    ):
        trainer.continuous_eval("e")
    assert "Waiting for" in caplog.text and "element_spec.json" in caplog.text


def test_live_line_says_that_it_waits(monkeypatch):
    shown = types.SimpleNamespace(phase="finishing")  # what an evaluation leaves
    monkeypatch.setattr(panel, "current", lambda: shown)
    patience = standalone_lib.Patience(poll_secs=0.0, timeout_secs=None)
    patience.wait("a checkpoint")
    assert shown.phase == "waiting"


def test_timeout_while_waiting_for_another_checkpoint(run, trainer):
    (run / "train_complete.txt").unlink()
    with pytest.raises(TimeoutError, match=r"after step 10 in .*checkpoints, or for"):
        trainer.continuous_eval("limited")
    assert steps(run, "limited") == [10]


def test_run_that_was_begun_anew_is_told_what_to_delete(run, trainer):
    trainer.continuous_eval("limited")
    (run / "train_complete.txt").unlink()
    for step in (8, 10):
        shutil.rmtree(run / "checkpoints" / f"ckpt_{step}")
    advice = r"started over\? Then delete .*/_eval_limited\)"
    with pytest.raises(TimeoutError, match=advice):
        trainer.continuous_eval("limited")
    shutil.rmtree(run / "_eval_limited")
    with pytest.raises(TimeoutError, match="after step 4"):
        trainer.continuous_eval("limited")
    assert steps(run, "limited") == [10, 4]


def test_complete_run_without_a_checkpoint_is_an_error(run, trainer):
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FileNotFoundError, match="complete, but there is no checkpoint"):
        trainer.continuous_eval("e")


#
# Failures
#


class FailingFrom(kd.evals.Evaluator):
    """Fails from a step on."""

    first: int = 0
    calls: tuple = ()

    def evaluate(self, state, step):
        if step >= self.first:
            self.calls[0].append(step)
            raise ZeroDivisionError("one by none")
        return super().evaluate(state, step)


def test_one_failing_evaluator_does_not_stop_the_other(run, caplog):
    calls = []
    every = kd.evals.StandaloneEveryCheckpoint(skip_missed=False)
    trainer = trainer_of(run)
    trainer = trainer.replace(
        evals={
            "bad": FailingFrom(run=every, first=4, calls=(calls,)),
            "good": kd.evals.Evaluator(run=every),
        }
    )
    with pytest.raises(ExceptionGroup) as info:
        trainer.continuous_eval(["bad", "good"])
    (error,) = info.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert str(error) == "Evaluator bad failed at step 4: one by none"
    assert "one by none" in caplog.text and "Traceback" in caplog.text
    assert calls == [4]
    assert steps(run, "bad") == [0] and steps(run, "good") == [0, 4, 8, 10]
    progress = json.loads((run / "_eval_bad+good/progress.json").read_text())
    assert progress == {"bad": 0, "good": 10}


def test_all_evaluators_failing_end_at_once(run):
    (run / "train_complete.txt").unlink()  # it would wait for ever otherwise
    calls = []
    evals = {
        name: FailingFrom(run=kd.evals.StandaloneEveryCheckpoint(), calls=(calls,))
        for name in ("a", "b")
    }
    with pytest.raises(ExceptionGroup) as info:
        trainer_of(run).replace(evals=evals).continuous_eval(["a", "b"])
    assert len(info.value.exceptions) == 2 and calls == [10, 10]


def test_checkpoint_deleted_while_it_is_read_gives_way_to_the_next(
    run, trainer, monkeypatch
):
    load = standalone_files.OwnRun.load

    def delete_and_load(self, step, **kwargs):
        if step == 10:
            shutil.rmtree(self.checkpoint_folder / f"ckpt_{step}")
        return load(self, step, **kwargs)

    monkeypatch.setattr(standalone_files.OwnRun, "load", delete_and_load)
    trainer.continuous_eval("e")
    assert steps(run, "e") == [8]


def test_damaged_checkpoint_is_reported_and_the_newest_good_one_used(
    run, trainer, caplog
):
    damaged = run / "checkpoints" / "ckpt_10" / "default"
    for path in damaged.rglob("*"):
        if path.is_file() and path.stat().st_size > 100:
            path.write_bytes(path.read_bytes()[:50])
    trainer.continuous_eval("e")
    assert "ckpt_10 cannot be read" in caplog.text
    assert steps(run, "e") == [8]


def test_renamed_checkpoint_is_reported_and_not_evaluated_as_another_step(
    run, trainer, caplog
):
    (run / "checkpoints" / "ckpt_4").rename(run / "checkpoints" / "ckpt_12")
    trainer.continuous_eval("e")
    assert "ckpt_12 cannot be read" in caplog.text
    assert "the state of step 4: was it renamed?" in caplog.text
    assert steps(run, "e") == [10]


class OtherLinear(nn.Module):
    """Like the toy model, with other parameters."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(2, name="other_name")(x)}


@pytest.mark.parametrize("discard_opt", [False, True])
def test_checkpoint_of_another_model_is_refused_with_the_paths(run, discard_opt):
    (run / "train_complete.txt").unlink()  # it is refused without waiting
    every = kd.evals.StandaloneEveryCheckpoint()
    trainer = trainer_of(run).replace(
        model=OtherLinear(),
        train_metrics={},
        evals={"e": kd.evals.Evaluator(run=every, discard_opt=discard_opt)},
    )
    with pytest.raises(kd.ckpts.StructureMismatch, match=r"other_name[\s\S]*dense"):
        trainer.continuous_eval("e")
    assert not (run / "e").exists()


class StateProbe(kd.evals.EvaluatorBase):
    """Keeps the states it is given."""

    seen: tuple = ()

    def evaluate(self, state, step):
        self.seen[0].append(state)


@pytest.mark.parametrize("discard_opt", [False, True])
def test_optimizer_state_is_restored_only_if_somebody_wants_it(run, discard_opt):
    seen = []
    every = kd.evals.StandaloneEveryCheckpoint()
    other = optax.sgd(0.1) if discard_opt else optax.adam(0.1)  # what was not trained
    trainer = trainer_of(run).replace(
        optimizer=other,
        evals={"p": StateProbe(run=every, seen=(seen,), discard_opt=discard_opt)},
    )
    assert trainer.continuous_eval("p") == {"p": None}
    (state,) = seen
    assert int(state.step) == 10 and (state.opt_state is None) == discard_opt


def test_averaged_weights_are_found_although_the_optimizer_is_discarded(tmp_path):
    optimizer = optax.chain(optax.adam(0.1), kd.optim.ema_params(decay=0.5))
    every = kd.evals.StandaloneEveryCheckpoint()
    evals = {
        name: kd.evals.Evaluator(run=every, discard_opt=True, init_transform=transform)
        for name, transform in {
            "plain": kd.ckpts.NoopTransform(),
            "ema": kd.optim.UseEmaParams(),
        }.items()
    }
    trainer = konfig.resolve(make_cfg(tmp_path)).replace(
        optimizer=optimizer,
        evals=evals,
        checkpointer=kd.ckpts.Checkpointer(**ONLY_THE_LAST),
    )
    trainer.train()
    trainer.continuous_eval(["plain", "ema"])
    assert steps(tmp_path, "ema") == steps(tmp_path, "plain") == [10]
    assert points(tmp_path, "ema") != points(tmp_path, "plain")


#
# Interruption
#


class Interrupted(kd.evals.Evaluator):
    """Calls a function before each batch."""

    hooks: list = None  # the last one is called

    def checked_step(self, index, state, batch):
        self.hooks[-1](index)
        return super().checked_step(index, state, batch)


def interrupted(trainer):
    """The trainer with evaluators that call a function before each batch."""
    hooks = []
    every = kd.evals.StandaloneEveryCheckpoint(seconds_to_sleep=0.02)
    really_every = dataclasses.replace(every, skip_missed=False)
    evals = {
        "e": Interrupted(run=every, hooks=hooks),
        "all": Interrupted(run=really_every, hooks=hooks),
    }
    return trainer.replace(evals=evals), hooks


@pytest.fixture(scope="module")
def shared_interrupted(shared_trainer):
    return interrupted(shared_trainer)


@pytest.fixture
def with_hook(shared_interrupted, run):
    """Gives a trainer for the run of this test, which calls a hook before each batch."""

    def with_hook(hook):
        trainer, hooks = shared_interrupted
        hooks[:] = [hook]
        return trainer

    return with_hook


def test_sigterm_stops_at_the_next_batch_and_a_new_start_repeats_the_evaluation(
    run, trainer, with_hook
):
    batches = []

    def terminate(index):
        batches.append(index)
        if index == 1:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(kd.train.Preempted) as info:
        with_hook(terminate).continuous_eval("e")
    assert info.value.code == 143 and batches == [0, 1]
    assert steps(run, "e") == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    trainer.continuous_eval("e")
    assert steps(run, "e") == [10]


def test_sigterm_is_served_while_waiting(run, monkeypatch):
    (run / "train_complete.txt").unlink()
    evals = {"e": standalone(seconds_to_sleep=1000)}
    sleep = time.sleep

    def ring_and_sleep(seconds):
        signal.raise_signal(signal.SIGTERM)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", ring_and_sleep)
    with pytest.raises(kd.train.Preempted):
        trainer_of(run, evals=evals).continuous_eval("e")
    assert steps(run, "e") == [10]


@pytest.mark.parametrize("moment", ["evaluating", "noting"])
def test_finished_steps_are_not_repeated_and_the_interrupted_one_is_logged_once(
    run, trainer, with_hook, monkeypatch, moment
):
    seen = []
    finish = EvalProgress.finish

    def die_evaluating(index):
        seen.append(index)
        if moment == "evaluating" and len(seen) == 6:
            raise KeyboardInterrupt  # the process is gone

    def die_noting(self, name, step):
        if moment == "noting" and step == 4:
            raise KeyboardInterrupt
        finish(self, name, step)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(EvalProgress, "finish", die_noting)
        with_hook(die_evaluating).continuous_eval("all")
    assert json.loads((run / "_eval_all/progress.json").read_text()) == {"all": 0}
    trainer.continuous_eval("all")
    assert steps(run, "all") == [0, 4, 8, 10]
    trainer.continuous_eval("all")
    assert steps(run, "all") == [0, 4, 8, 10]


def test_what_was_done_in_another_group_is_not_done_again(run, trainer):
    trainer.continuous_eval(["a", "e"])
    trainer.continuous_eval("a")
    assert steps(run, "a") == [10]


def test_values_that_were_written_along_training_are_kept(run, trainer):
    writer = kd.train.KDMetricWriter(workdir=str(run), collection="e")
    writer.write_scalars(4, {"losses/l2": 1.0})
    writer.close()
    trainer.continuous_eval("e")
    assert steps(run, "e") == [4, 10]


def test_unreadable_progress_is_reported_and_ignored(run, trainer, caplog):
    (run / "_eval_e").mkdir()
    (run / "_eval_e" / "progress.json").write_text("{nonsense")
    trainer.continuous_eval("e")
    assert steps(run, "e") == [10] and "progress.json cannot be read" in caplog.text


PREEMPTABLE = {"setup": kd_cfg.train.Setup(preemptable_eval=True)}


def test_checkpoint_deleted_during_an_interruption_is_still_evaluated(run):
    def terminate(index):
        if index == 1:
            assert (run / "_eval_e/checkpoints/ckpt_10").is_dir()
            raise KeyboardInterrupt

    trainer, hooks = interrupted(trainer_of(run, **PREEMPTABLE))
    hooks.append(terminate)
    with pytest.raises(KeyboardInterrupt):
        trainer.continuous_eval("e")
    shutil.rmtree(run / "checkpoints" / "ckpt_10")
    trainer_of(run, **PREEMPTABLE).continuous_eval("e")
    assert steps(run, "e") == [10]
    assert not (run / "_eval_e/checkpoints").exists()


def test_kept_checkpoint_shares_its_files_with_the_original(run):
    inodes = []

    def look(index):
        for root in (run / "checkpoints", run / "_eval_e/checkpoints"):
            files = sorted(p for p in (root / "ckpt_10").rglob("*") if p.is_file())
            inodes.append([p.stat().st_ino for p in files])

    trainer, hooks = interrupted(trainer_of(run, **PREEMPTABLE))
    hooks.append(look)
    trainer.continuous_eval("e")
    assert inodes[0] == inodes[1] != []


#
# One process per evaluator
#


@pytest.mark.parametrize("names", [["e"], ["e", "f"]])
def test_second_process_with_the_same_evaluator_is_refused(trainer, with_hook, names):
    every = kd.evals.StandaloneEveryCheckpoint()
    tried = []

    def start_another(index):
        if not tried:
            tried.append(1)
            trainer.replace(
                evals={name: kd.evals.Evaluator(run=every) for name in ("e", "f")}
            ).continuous_eval(names)

    with pytest.raises(ExceptionGroup) as info:
        with_hook(start_another).continuous_eval("e")
    assert "Another process evaluates e in" in str(info.value.exceptions[0])
    assert "process" in str(info.value.exceptions[0])


def test_lock_of_a_dead_process_is_taken_over(run, trainer):
    (run / "_eval_e").mkdir()
    owner = {"host": "elsewhere", "pid": 1, "time": 0.0, "evaluators": ["e"]}
    (run / "_eval_e" / "eval.lock").write_text(json.dumps(owner))
    trainer.continuous_eval("e")
    assert steps(run, "e") == [10]
