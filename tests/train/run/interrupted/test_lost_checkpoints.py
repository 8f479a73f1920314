"""A run whose checkpoints are gone does not start over by itself."""

import json
import pathlib
import shutil
import signal

import pytest

from kauldron import kd, writers
from tests import compilation, processes
from tests.faults import experiments, rounds
from tests.train.toy import CONFIG, make_ds, make_trainer

# Saves the first step and the last.
RARELY = kd.ckpts.Checkpointer(save_interval_steps=100)


def _make(workdir, **changes):
    evals = {
        "val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4), ds=make_ds(num_epochs=1))
    }
    kwargs = {"evals": evals, "num_train_steps": 8, "checkpointer": RARELY}
    return make_trainer(workdir, **(kwargs | changes))


def _log(workdir):
    names = ("train", "val")
    return {name: writers.read_scalars(pathlib.Path(workdir) / name) for name in names}


def _start_over(workdir, **changes):
    return _make(workdir, setup=kd.train.Setup(start_over=True), **changes)


@pytest.fixture(scope="module")
def earlier_runs(tmp_path_factory):
    """Workdirs of a complete run, and of one that was stopped without a save."""
    root = tmp_path_factory.mktemp("earlier")
    _make(root / "complete").train()
    with pytest.raises(KeyboardInterrupt):
        _make(root / "stopped", evals={"stop": Stop(run=kd.evals.Once(5))}).train()
    return root


@pytest.fixture
def complete(earlier_runs, tmp_path):
    """A copy of the workdir of a complete run."""
    return shutil.copytree(earlier_runs / "complete", tmp_path / "complete")


@pytest.fixture
def stopped(earlier_runs, tmp_path):
    """A copy of the workdir of a run that was stopped without a save."""
    return shutil.copytree(earlier_runs / "stopped", tmp_path / "stopped")


def test_complete_run_without_its_checkpoints_is_refused_and_keeps_its_log(complete):
    log = _log(complete)
    marker = (complete / "train_complete.txt").read_text()
    shutil.rmtree(complete / "checkpoints")
    with pytest.raises(FileNotFoundError) as error:
        _make(complete).train()
    message = str(error.value)
    assert f"{complete} had come to step 8" in message
    assert f"no checkpoint in {complete}/checkpoints" in message
    assert "--cfg.setup.start_over=True" in message
    assert f"moved to {complete}/earlier_1" in message
    assert _log(complete) == log
    assert (complete / "train_complete.txt").read_text() == marker


def test_start_over_moves_the_log_aside_each_time(complete):
    log = _log(complete)
    for number in (1, 2):
        shutil.rmtree(complete / "checkpoints")
        state, _ = _start_over(complete).train()
        assert int(state.step) == 8
        assert _log(complete / f"earlier_{number}") == log
        log = _log(complete)
        info = json.loads((complete / "run_info.json").read_text())
        assert [start["step"] for start in info["starts"]] == [0]
        assert (complete / f"earlier_{number}" / "train_complete.txt").exists()


def test_start_over_goes_on_from_a_checkpoint_that_is_there(tmp_path):
    """A job that is started again and again with the flag loses nothing."""
    _make(tmp_path, stop_after_steps=4).train()
    state, _ = _start_over(tmp_path).train()
    info = json.loads((tmp_path / "run_info.json").read_text())
    assert [start["step"] for start in info["starts"]] == [0, 4]
    assert int(state.step) == 8
    assert not (tmp_path / "earlier_1").exists()


@pytest.mark.parametrize("content", ["unfinished", "", "[]", '{"starts": 3}'])
def test_run_whose_notes_are_damaged_as_well_is_refused(stopped, content):
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "run_info.json").write_text(content)
    log = _log(stopped)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="start_over"):
            _make(stopped).train()
    assert _log(stopped) == log


class Stop(kd.evals.EvaluatorBase):
    """Ends the run without another save."""

    def evaluate(self, state, step):
        raise KeyboardInterrupt


def test_run_without_a_checkpointer_does_not_write_over_one_that_had_it(complete):
    log = _log(complete)
    with pytest.raises(FileNotFoundError, match=r"cfg\.checkpointer.*start_over"):
        _make(complete, checkpointer=None).train()
    assert _log(complete) == log


def test_run_stopped_before_its_first_checkpoint_starts_over_by_itself(tmp_path):
    later = kd.ckpts.Checkpointer(save_interval_steps=100, never_save_step_zero=True)
    evals = {"stop": Stop(run=kd.evals.Once(5))}
    with pytest.raises(KeyboardInterrupt):
        _make(tmp_path, evals=evals, checkpointer=later).train()
    state, _ = _make(tmp_path, checkpointer=later).train()
    assert int(state.step) == 8


def test_killed_run_without_its_checkpoints_is_refused(tmp_path):
    process = processes.Process(
        experiments.train,
        tmp_path,
        "plain",
        ("step", 13, signal.SIGKILL),
        environment=compilation.quick_environment(),
    )
    code, output = process.wait()
    assert code == -signal.SIGKILL, output
    log = rounds.logged_points(tmp_path, ["train", "eval"])
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError, match="start_over"):
        experiments.train(tmp_path)
    assert rounds.logged_points(tmp_path, ["train", "eval"]) == log and log["train"]


@pytest.mark.slow
@pytest.mark.usefixtures("fast_python")
def test_command_refuses_in_one_line_and_takes_the_flag(tmp_path, complete):
    (tmp_path / "config.py").write_text(CONFIG)
    command = ["-m", "kauldron.main", "train"]
    command += [f"--cfg={tmp_path}/config.py", f"--cfg.workdir={complete}"]

    def run(*flags):
        return processes.python(*command, *flags).wait()

    shutil.rmtree(complete / "checkpoints")
    code, output = run()
    assert code == 1
    assert "start_over" in output.splitlines()[-1]
    assert "Traceback" not in output
    code, output = run("--cfg.setup.start_over=True")
    assert code == 0, output
    assert (complete / "earlier_1/train/scalars.jsonl").exists()
