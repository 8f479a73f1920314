"""What `kauldron eval` says about folders that have nothing to evaluate."""

import re
import shutil

import pytest

from kauldron import cli
from tests.ckpts.states import files_below
from tests.evals.experiments import make_cfg, resolve, standalone

EVAL_ONLY = """
from kauldron import konfig

with konfig.imports():
    from kauldron import kd
    from tests.train import toy

def get_config():
    return kd.train.Trainer.eval_only(
        evals={
            "my_eval": kd.evals.Evaluator(
                run=kd.evals.StandaloneLastCheckpoint(),
                num_batches=None,
                ds=toy.make_ds(shuffle=False, num_epochs=1),
            ),
        },
    )
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run with the checkpoints 4 and 5."""
    workdir = tmp_path_factory.mktemp("finished")
    evals = {"e": standalone()}
    resolve(make_cfg(workdir, evals=evals, num_train_steps=5)).train()
    return workdir


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def eval_only(tmp_path):
    """Flags of an evaluation of an earlier run, whose folder is still to be said."""
    path = tmp_path / "eval_only.py"
    path.write_text(EVAL_ONLY)
    return [f"--cfg={path}", f"--cfg.workdir={tmp_path / 'results'}"]


@pytest.fixture
def complaint(capsys, caplog):
    """Runs the command, which must fail; gives its exit code and what it said."""

    def call(*arguments):
        with caplog.at_level("INFO", logger="kauldron"):
            try:
                code = cli.main(["eval", *map(str, arguments)])
            except SystemExit as error:
                code = error.code
        said = caplog.text + capsys.readouterr().err
        assert code and "Traceback" not in said, said
        return code, said

    return call


def test_no_run_yet_is_waited_for_until_the_time_limit(complaint, run, tmp_path):
    code, said = complaint(
        f"--cfg={run / 'config.json'}",
        f"--cfg.workdir={tmp_path / 'later'}",
        "--cfg.evals.e.run.timeout_secs=0.1",
    )
    awaited = f"Waiting for {tmp_path / 'later'}/element_spec.json, which training"
    assert code == 1 and awaited in said
    assert "error: Nothing appeared for 0.1 seconds" in said


def test_no_checkpoint_yet_is_waited_for_until_the_time_limit(complaint, run):
    shutil.rmtree(run / "checkpoints")
    (run / "train_complete.txt").unlink()
    code, said = complaint(f"--workdir={run}", "--cfg.evals.e.run.timeout_secs=0.1")
    assert code == 1
    assert f"Waiting for a checkpoint in {run}/checkpoints, or for {run}/train_" in said
    assert "Is the training job alive?" in said
    assert not (run / "checkpoints").exists()


def test_deleted_checkpoints_of_a_complete_run(complaint, run):
    shutil.rmtree(run / "checkpoints")
    code, said = complaint(f"--workdir={run}")
    assert code == 2 and f"there is no checkpoint to evaluate in {run}/checkp" in said
    assert not (run / "checkpoints").exists()


def test_checkpoint_of_another_model_is_refused_and_stays(complaint, run):
    before = files_below(run / "checkpoints")
    code, said = complaint(f"--workdir={run}", "--cfg.model.size=3")
    assert code == 2 and "saved with another model or optimizer" in said
    assert "params.dense.kernel: model (4, 3) vs checkpoint (4, 2)" in said
    assert files_below(run / "checkpoints") == before
    assert not (run / "e").exists()
    assert cli.main(["eval", f"--workdir={run}"]) == 0  # it can still be evaluated


@pytest.mark.parametrize(
    "folder, message",
    [
        ("nowhere", "nowhere is not the folder of a run: it has no config.json. There"),
        ("run/checkpoints", "no config.json. It holds: ckpt_"),
        ("run/config.json", "is not the folder of a run"),
    ],
)
def test_earlier_run_that_is_none(complaint, run, eval_only, tmp_path, folder, message):
    code, said = complaint(*eval_only, f"--cfg.aux.workdir={tmp_path / folder}")
    assert code == 2 and message in said
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--cfg.aux.step=3",), r"no checkpoint of step 3 in .*Steps: 0, 4, 5"),
        (
            ("--cfg.aux.step=-7",),
            r"step must be 0 or more, or -1 for the newest, got -7",
        ),
    ],
)
def test_checkpoint_of_an_earlier_run_that_is_not_there(
    complaint, run, eval_only, flags, message
):
    code, said = complaint(*eval_only, f"--cfg.aux.workdir={run}", *flags)
    assert code == 2 and re.search(message, said), said


def test_earlier_run_of_another_model(complaint, run, eval_only):
    before = files_below(run)
    code, said = complaint(
        *eval_only,
        f"--cfg.aux.workdir={run}",
        '--cfg.model={"__qualname__": "tests.train.toy:Linear", "x": "batch.x", '
        '"size": 3}',
    )
    assert code == 2
    assert f"'params' of {run}/checkpoints/ckpt_5 does not fit 'params'" in said
    assert "params.dense.kernel: model (4, 3) vs checkpoint (4, 2)" in said
    assert files_below(run) == before
