"""A run whose checkpoints are gone does not start over by itself."""

import json
import os
import pathlib
import shutil
import signal

import pytest

from kauldron import kd, writers
from tests import processes
from tests.faults import rounds
from tests.train.toy import CONFIG, make_ds, make_trainer


def _make(workdir, **changes):
    evals = {
        "val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4), ds=make_ds(num_epochs=1))
    }
    return make_trainer(workdir, **({"evals": evals, "num_train_steps": 8} | changes))


def _log(workdir):
    names = ("train", "val")
    return {name: writers.read_scalars(pathlib.Path(workdir) / name) for name in names}


def _start_over(workdir, **changes):
    return _make(workdir, setup=kd.train.Setup(start_over=True), **changes)


def test_complete_run_without_its_checkpoints_is_refused_and_keeps_its_log(tmp_path):
    _make(tmp_path).train()
    log = _log(tmp_path)
    marker = (tmp_path / "train_complete.txt").read_text()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError) as error:
        _make(tmp_path).train()
    message = str(error.value)
    assert f"{tmp_path} had come to step 8" in message
    assert f"no checkpoint in {tmp_path}/checkpoints" in message
    assert "--cfg.setup.start_over=True" in message
    assert f"moved to {tmp_path}/earlier_1" in message
    assert _log(tmp_path) == log
    assert (tmp_path / "train_complete.txt").read_text() == marker


def test_start_over_moves_the_log_aside_each_time(tmp_path):
    _make(tmp_path).train()
    log = _log(tmp_path)
    for number in (1, 2):
        shutil.rmtree(tmp_path / "checkpoints")
        state, _ = _start_over(tmp_path).train()
        assert int(state.step) == 8
        assert _log(tmp_path / f"earlier_{number}") == log
        log = _log(tmp_path)
        info = json.loads((tmp_path / "run_info.json").read_text())
        assert [start["step"] for start in info["starts"]] == [0]
        assert (tmp_path / f"earlier_{number}" / "train_complete.txt").exists()


def test_start_over_goes_on_from_a_checkpoint_that_is_there(tmp_path):
    """A job that is started again and again with the flag loses nothing."""
    _make(tmp_path, stop_after_steps=4).train()
    state, _ = _start_over(tmp_path).train()
    info = json.loads((tmp_path / "run_info.json").read_text())
    assert [start["step"] for start in info["starts"]] == [0, 4]
    assert int(state.step) == 8
    assert not (tmp_path / "earlier_1").exists()


@pytest.mark.parametrize("content", ["unfinished", "", "[]", '{"starts": 3}'])
def test_run_whose_notes_are_damaged_as_well_is_refused(tmp_path, content):
    with pytest.raises(KeyboardInterrupt):
        _make(tmp_path, evals={"stop": Stop(run=kd.evals.Once(5))}).train()
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "run_info.json").write_text(content)
    log = _log(tmp_path)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="start_over"):
            _make(tmp_path).train()
    assert _log(tmp_path) == log


class Stop(kd.evals.EvaluatorBase):
    """Ends the run without another save."""

    def evaluate(self, state, step):
        raise KeyboardInterrupt


def test_run_without_a_checkpointer_does_not_write_over_one_that_had_it(tmp_path):
    _make(tmp_path).train()
    log = _log(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cfg\.checkpointer.*start_over"):
        _make(tmp_path, checkpointer=None).train()
    assert _log(tmp_path) == log


def test_run_stopped_before_its_first_checkpoint_starts_over_by_itself(tmp_path):
    later = kd.ckpts.Checkpointer(save_interval_steps=100, never_save_step_zero=True)
    evals = {"stop": Stop(run=kd.evals.Once(5))}
    with pytest.raises(KeyboardInterrupt):
        _make(tmp_path, evals=evals, checkpointer=later).train()
    state, _ = _make(tmp_path, checkpointer=later).train()
    assert int(state.step) == 8


@pytest.mark.slow
@pytest.mark.usefixtures("fast_python")
def test_killed_run_without_its_checkpoints_is_refused(tmp_path):
    programs = os.environ["JAX_COMPILATION_CACHE_DIR"]
    lab, workdir = rounds.Lab(tmp_path, cache=programs), tmp_path / "run"
    instant = ("step", 13, int(signal.SIGKILL))
    status, output = lab.train(workdir, "plain", instant=instant)
    assert status == -signal.SIGKILL, output
    log = rounds.logged_points(workdir, ["train", "eval"])
    shutil.rmtree(workdir / "checkpoints")
    status, output = lab.train(workdir, "plain")
    assert status == 1 and "start_over" in output
    assert rounds.logged_points(workdir, ["train", "eval"]) == log and log["train"]


@pytest.mark.slow
@pytest.mark.usefixtures("fast_python")
def test_command_refuses_in_one_line_and_takes_the_flag(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)
    workdir = tmp_path / "run"
    command = ["-m", "kauldron.main", "train"]
    command += [f"--cfg={tmp_path}/config.py", f"--cfg.workdir={workdir}"]

    def run(*flags):
        return processes.python(*command, *flags).wait()

    assert run()[0] == 0
    shutil.rmtree(workdir / "checkpoints")
    code, output = run()
    assert code == 1
    assert "start_over" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert run("--cfg.setup.start_over=True")[0] == 0
    assert (workdir / "earlier_1/train/scalars.jsonl").exists()
