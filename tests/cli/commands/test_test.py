"""`kauldron test`, and `trainer.test` and `get_state` below it."""

import json
import pathlib
import sys

import numpy as np
import pytest

from kauldron import kd, konfig, writers
from tests.evals.experiments import kd as kd_cfg
from tests.evals.experiments import make_cfg, standalone


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run that keeps its first checkpoint, because it calls it the best."""
    workdir = tmp_path_factory.mktemp("finished") / "run"
    cfg = make_cfg(workdir)
    cfg.evals = {
        "along": kd_cfg.evals.Evaluator(run=kd_cfg.evals.EveryNSteps(5)),
        "alone": standalone(),
    }
    cfg.checkpointer = kd_cfg.ckpts.Checkpointer(
        save_interval_steps=5,
        best_metric_path="along.losses.l2",
        best_mode="max",
        max_to_keep=1,
    )
    konfig.resolve(cfg).train()
    return workdir


def _files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def _logged(folder, collection, step):
    (values,) = (
        line["values"]
        for line in writers.read_scalars(folder / collection)
        if line["step"] == step and "losses/l2" in line["values"]
    )
    return values["losses/l2"]


@pytest.mark.parametrize(("step", "number"), [("last", 10), ("best", 0), ("0", 0)])
def test_values_are_those_that_the_run_logged(kauldron, run, step, number):
    code, out, err = kauldron("test", run, f"--step={step}", "--eval=along", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["step"] == number
    assert found["values"]["along"]["losses/l2"] == pytest.approx(
        _logged(run, "along", number), rel=1e-6
    )


def test_all_evaluators_run_and_nothing_is_written(kauldron, run):
    before = _files(run)
    code, out, _ = kauldron("test", run)
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert {(row[0], row[1]) for row in rows} == {("along", "10"), ("alone", "10")}
    assert _files(run) == before


def test_a_run_without_evaluators_says_what_to_set(kauldron, run):
    code, _, err = kauldron("test", run, "--cfg.evals={}")
    assert (code, err.splitlines()) == (
        2,
        ["error: There is no evaluator; set `cfg.evals = {...}`."],
    )


def test_values_are_written_where_asked(kauldron, run, tmp_path):
    before = _files(run)
    target = tmp_path / "values"
    code, _, err = kauldron("test", run, "--eval=alone", f"--write_to={target}")
    assert code == 0, err
    assert _files(run) == before
    assert _logged(target, "alone", 10) == pytest.approx(_logged(run, "along", 10))


def test_the_config_can_be_changed(kauldron, run):
    code, out, _ = kauldron(
        "test", run, "--eval=along", "--json", "--cfg.evals.along.metrics={}"
    )
    assert code == 0
    assert all(key.startswith("losses/") for key in json.loads(out)["values"]["along"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step=7"], "There is no checkpoint of step 7"),
        (["--step=bets"], "--step must be best, last or a step, got 'bets'"),
        (["--eval=alon"], "There is no evaluator or job group called 'alon'"),
        (
            ["--step=best", "--cfg.checkpointer.best_metric_path=None"],
            "did not set `cfg.checkpointer.best_metric_path`. The last is of step 10",
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(kauldron, run, arguments, message):
    code, _, err = kauldron("test", run, *arguments)
    assert code == 2
    assert message in err and "Traceback" not in err


def test_a_folder_that_is_not_of_a_run(kauldron, tmp_path):
    code, _, err = kauldron("test", tmp_path)
    assert code == 2 and "is not the folder of a run" in err


def test_states_by_word(run):
    trainer = kd.from_workdir.get_trainer(run)
    assert int(trainer.get_state(step="best").step) == 0
    state = trainer.get_state()
    assert int(state.step) == 10 and state.opt_state is not None
    assert trainer.get_state(optimizer=False).opt_state is None
    assert int(kd.from_workdir.get_state(run, step="best").step) == 0
    assert int(kd.from_workdir.get_state(run, step="last").step) == 10
    with pytest.raises(ValueError, match="Did you mean"):
        trainer.get_state(step="bets")


def test_a_given_state_is_tested(run):
    trainer = kd.from_workdir.get_trainer(run)
    values = trainer.test("along", state=trainer.get_state(step=0))["along"]
    np.testing.assert_allclose(
        values.loss_values["losses/l2"], _logged(run, "along", 0), rtol=1e-6
    )


def test_texts_of_summaries_follow_the_values_in_a_terminal(kauldron, run, monkeypatch):
    table = "true \\ pred | cat | dog\n--- | --- | ---\ncat | 5 | 0\ndog | 2 | 7"

    def test(self, names, *, step, write_to):
        texts = {"summaries/confusion": table, "summaries/pictures": np.zeros(3)}
        return {"along": kd.train.AuxiliariesOutput(summary_values=texts)}

    monkeypatch.setattr(kd.train.Trainer, "test", test)
    _, piped, _ = kauldron("test", run, "--eval=along")
    assert "pred" not in piped
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    code, out, _ = kauldron("test", run, "--eval=along")
    assert code == 0
    assert "along · confusion, step 10" in out
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["cat", "5", "·"],
        ["dog", "2", "7"],
    ]
