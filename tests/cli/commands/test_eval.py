"""`kauldron eval`, in this process."""

from traceback import walk_tb

import pytest

from kauldron import konfig
from tests.evals.experiments import kd as kd_cfg
from tests.evals.experiments import make_cfg, standalone, steps


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run with evaluators of all kinds, none of which ran yet."""
    workdir = tmp_path_factory.mktemp("finished")
    evals = {
        "a": standalone(job_group="both"),
        "b": standalone(job_group="both", every=False),
        "c": standalone(),
        "along": kd_cfg.evals.Evaluator(run=kd_cfg.evals.Once(99)),
    }
    with pytest.warns(UserWarning, match="along will never run"):
        konfig.resolve(make_cfg(workdir, evals=evals)).train()
    return workdir


def test_group_of_a_moved_run_is_evaluated_with_its_own_config(kauldron, run):
    code, out, _ = kauldron("eval", f"--workdir={run}", "--eval_names=both")
    assert code == 0
    assert steps(run, "a") == steps(run, "b") == [10]
    assert not (run / "c").exists()
    assert "losses/l2" in out and f"Everything is in {run}" in out


def test_fields_of_the_stored_config_can_be_overridden(kauldron, run):
    code, _, _ = kauldron(
        "eval", f"--workdir={run}", "--eval_names=c", "--cfg.evals.c.metrics={}"
    )
    assert code == 0
    assert steps(run, "c") == [10] and steps(run, "c", "metrics/norm") == []


def test_train_with_names_of_evaluators_evaluates(kauldron, run):
    file = run / "config.json"
    code, _, _ = kauldron(
        "train", f"--cfg={file}", f"--cfg.workdir={run}", "--eval_names=both,c"
    )
    assert code == 0
    assert steps(run, "a") == steps(run, "b") == steps(run, "c") == [10]


def test_list_names_processes_and_commands(kauldron, run):
    code, out, _ = kauldron("eval", f"--workdir={run}", "--list")
    assert code == 0
    assert out.splitlines() == [
        "both: a, b",
        f"  kauldron eval --workdir={run} --eval_names=both",
        "c: c",
        f"  kauldron eval --workdir={run} --eval_names=c",
    ]


def test_list_repeats_the_flags_of_the_config(kauldron, run):
    file = run / "config.json"
    _, out, _ = kauldron(
        "eval", f"--cfg={file}", "--cfg.evals.c.num_batches=2", "--list"
    )
    command = f"kauldron eval --cfg={file} --cfg.evals.c.num_batches=2"
    assert out.splitlines()[1] == f"  {command} --eval_names=both"


def test_list_without_standalone_evaluators_says_so(kauldron, tmp_path):
    (tmp_path / "config.json").write_text(make_cfg("").to_json())
    code, out, _ = kauldron("eval", f"--workdir={tmp_path}", "--list")
    assert code == 0 and "No evaluator" in out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "Which run? Give --workdir=path/to/run"),
        (("--workdir=RUN",), "Give --eval_names, one of: both, c"),
        (("--workdir=RUN", "--eval_names=nope"), "'nope'"),
        (("--workdir=RUN", "--eval_names=along"), "'along' does not run in a process"),
        (("--workdir=RUN/checkpoints",), "no config.json (it holds ckpt_"),
        (("--workdir=RUN/nowhere",), "there is no such folder"),
    ],
)
def test_bad_input_is_told_without_a_traceback(kauldron, run, arguments, message):
    code, _, err = kauldron("eval", *(a.replace("RUN", str(run)) for a in arguments))
    assert code == 2 and message in err and "Traceback" not in err


def test_the_only_group_needs_no_name(kauldron, run):
    code, _, _ = kauldron(
        "eval", f"--workdir={run}", "--cfg.evals.a=None", "--cfg.evals.b=None"
    )
    assert code == 2  # None is no evaluator
    code, _, _ = kauldron(
        "eval",
        f"--workdir={run}",
        *(f"--cfg.evals.{name}.run.job_group=all" for name in "abc"),
    )
    assert code == 0 and steps(run, "c") == [10]


def test_eval_only_config_runs_all_its_evaluators(kauldron, run, tmp_path):
    config = tmp_path / "eval_cfg.py"
    config.write_text(
        """
from kauldron import konfig

with konfig.imports():
    from kauldron import kd
    from tests.train import toy

def get_config():
    return kd.train.Trainer.eval_only(
        evals={
            name: kd.evals.Evaluator(
                run=run, ds=toy.make_ds(shuffle=False, num_epochs=1)
            )
            for name, run in {
                "x": kd.evals.StandaloneLastCheckpoint(),
                "y": kd.evals.EveryNSteps(3),
            }.items()
        }
    )
"""
    )
    flags = (f"--cfg={config}", f"--cfg.aux.workdir={run}", f"--cfg.workdir={tmp_path}")
    code, out, _ = kauldron("eval", *flags, "--list")
    assert out.startswith("all in one process: x, y\n  kauldron eval --cfg=")
    for command in ("eval", "train"):
        code, out, _ = kauldron(command, *flags)
        assert code == 0 and "losses/l2" in out
        assert steps(tmp_path, "x") == steps(tmp_path, "y") == [10]


@pytest.mark.parametrize("flags", [(), ("--traceback",)])
def test_training_that_gives_no_sign_of_life(kauldron, run, capsys, flags):
    (run / "train_complete.txt").unlink()
    flags = (*flags, "--eval_names=c", "--cfg.evals.c.run.timeout_secs=0.1")
    with pytest.raises(SystemExit) as stopped:
        kauldron("eval", f"--workdir={run}", *flags)
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert "error: " in err
    assert ("Traceback" in err) == ("--traceback" in flags)


@pytest.mark.parametrize("command", ["eval", "test"])
def test_debugger_opens_where_an_evaluation_fails(kauldron, run, monkeypatch, command):
    def fail(*args, **kwargs):
        raise RuntimeError("out of coffee")

    frames = []
    monkeypatch.setattr("pdb.post_mortem", lambda tb: frames.extend(walk_tb(tb)))
    monkeypatch.setattr("kauldron.train.Trainer.continuous_eval", fail)
    monkeypatch.setattr("kauldron.train.Trainer.test", fail)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    where = [f"--workdir={run}", "--eval_names=c"] if command == "eval" else [run]
    with pytest.raises(RuntimeError, match="out of coffee"):
        kauldron(command, *where, "--catch_post_mortem")
    assert frames[-1][0].f_code.co_name == "fail"
