"""`kauldron run eval_shape | memory`, `check`, `data`, `runs`."""

import json
import os
import subprocess
import sys

import pytest

from kauldron.cli import COMMANDS
from kauldron.train.workdir_lock import workdir_lock


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_every_command_exits_0(kauldron, words):
    code, out, err = kauldron(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: kauldron {' '.join(words)} ")


def test_help_of_run_lists_the_patches(kauldron):
    _, out, _ = kauldron("run", "--help")
    assert "--patch.skip_checkpointer=True" in out
    assert "--patch.batch_size=devices" in out


#
# run eval_shape, run memory
#


def test_eval_shape_prints_state_and_context(kauldron, folder):
    code, out, err = kauldron("run", "eval_shape", "--cfg=toy.py")
    assert code == 0
    lines = out.splitlines()
    assert lines[:3] == ["# --cfg=toy.py", "", "State"]
    assert "params.layers_0.kernel\tf32[4 2]" in lines
    assert "batch.x\tf32[16 4]" in lines[lines.index("Context") :]
    assert "Shapes of a train step: " in err
    assert not list(folder.glob("run*"))


def test_eval_shape_follows_overrides_and_patches(kauldron):
    _, out, _ = kauldron(
        "run", "eval_shape", "--cfg=toy.py", "--patch.batch_size=3", "--cfg.seed=1"
    )
    assert "batch.x\tf32[3 4]" in out
    assert "# patched: train_ds.batch_size=3" in out


def test_memory_prints_bytes_per_device(kauldron):
    code, out, _ = kauldron("run", "memory", "--cfg=toy.py")
    assert code == 0
    sizes = {row.split("\t")[0]: int(row.split("\t")[2]) for row in out.splitlines()}
    assert sizes["parameters"] == (4 * 2 + 2) * 4
    assert sizes["optimizer state"] == 2 * sizes["parameters"] + 4
    assert sizes["batch"] == 16 * (4 + 2) * 4
    assert sizes["total"] >= sizes["parameters"] + sizes["optimizer state"]


def test_wrong_key_is_an_error_of_eval_shape(kauldron):
    with pytest.raises(KeyError, match=r"'preds\.z'"):
        kauldron("run", "eval_shape", "--cfg=problems.py", "--cfg.train_losses={}")


#
# check
#


def test_check_of_a_good_config_exits_0(kauldron, folder):
    code, out, _ = kauldron("check", "--cfg=toy.py")
    assert code == 0
    assert out.startswith("No problems found in toy.py")
    assert not list(folder.glob("run*"))


def test_check_reports_every_problem_with_its_path_and_line(kauldron, folder):
    code, out, _ = kauldron("check", "--cfg=problems.py")
    assert code == 1
    lines = (folder / "problems.py").read_text().splitlines()

    def place(text):
        number = next(i for i, line in enumerate(lines, 1) if text in line)
        return f"set at problems.py:{number}"

    problems = out.split("\ncfg.")
    assert out.splitlines()[-1] == "4 problems in problems.py"
    assert len(problems) == 4
    expected = {
        "train_losses.l2": ["(16, 3)", "(16, 2)", place("cfg.train_losses = ")],
        "train_metrics.a.b": ["preds.z", place("preds.z")],
        "train_summaries.s": ["batch.imgae", place("imgae")],
        "evals.test.metrics.m": ["grads", place('tensor="grads"')],
    }
    for (path, words), problem in zip(expected.items(), problems):
        assert problem.removeprefix("cfg.").startswith(f"{path}: ")
        for word in words:
            assert word in problem


def test_check_names_the_flag_that_is_wrong(kauldron):
    code, out, _ = kauldron(
        "check", "--cfg=toy.py", "--cfg.train_metrics.norm.tensor=preds.q"
    )
    assert code == 1
    assert "cfg.train_metrics.norm: " in out
    assert "set by --cfg.train_metrics.norm.tensor=preds.q" in out


def test_check_tells_what_is_missing(kauldron):
    code, out, _ = kauldron(
        "check", "--cfg=toy.py", "--cfg.model=None", "--cfg.optimizer=None"
    )
    assert code == 1
    assert "cfg.model: `trainer.model` is not set; set `cfg.model = ...`." in out
    assert "cfg.optimizer: `trainer.optimizer` is not set; set" in out


def test_check_reports_problems_of_every_stage_at_once(kauldron):
    """Names that do not exist, parts that refuse, fields of the trainer, keys."""
    flags = {
        "--cfg.modle=1": "Did you mean 'model'?",
        "--cfg.optimizer.b3=1": "adam has no parameter 'b3'",
        "--cfg.checkpointer.save_interval_steps=-1": "must be at least 1, got -1",
        "--cfg.evals.alone.runn=1": "Did you mean 'run'? It accepts: run, name",
        "--cfg.evals.test=1": "cfg.evals.test: `trainer.evals['test']` must be",
        "--cfg.num_train_steps=-1": "cfg.num_train_steps: `trainer.num_train_steps`",
        "--cfg.log_metrics_every=-2": "cfg.log_metrics_every: `trainer.log_metrics",
        "--cfg.train_metrics.norm.tensor=preds.q": "'preds' (dict) has no 'q'",
    }
    code, out, _ = kauldron("check", "--cfg=toy.py", *flags)
    assert code == 1
    assert out.splitlines()[-1] == "8 problems in toy.py"
    for flag, words in flags.items():
        assert words in out
        assert f"set by {flag}" in out
    assert "Traceback" not in out and "JAX" not in out


def test_check_of_a_part_that_others_refer_to(kauldron, folder):
    (folder / "refers.py").write_text(
        (folder / "toy.py").read_text().replace("    return cfg\n", REFERENCE)
    )
    code, out, _ = kauldron("check", "--cfg=refers.py")
    assert code == 1
    assert "schedules.lr" in out and "no parameter 'vlue'" in out
    assert "cfg.optimizer" not in out  # it only refers to what is wrong
    assert out.splitlines()[-1] == "2 problems in refers.py"


def test_check_of_a_config_that_only_evaluates(kauldron, folder):
    kauldron("train", "--cfg=toy.py", "--cfg.workdir=run", "--cfg.num_train_steps=1")
    (folder / "looks.py").write_text(
        (folder / "toy.py").read_text().replace("def get_config", EVAL_ONLY, 1)
    )
    flags = ("check", "--cfg=looks.py")
    code, out, _ = kauldron(*flags)
    assert code == 1
    assert "Set `cfg.aux.workdir`" in out  # said once, though many parts need it
    assert out.splitlines()[-1] == "1 problem in looks.py"
    assert kauldron(*flags, "--cfg.aux.workdir=run")[0] == 0
    code, out, _ = kauldron(
        *flags, "--cfg.aux.workdir=run", "--cfg.evals.look.metrics.n.tensor=preds.q"
    )
    assert code == 1
    assert "cfg.evals.look.metrics.n: " in out and "has no 'q'" in out


EVAL_ONLY = """
def get_config():
    norm = kd.metrics.Norm(tensor="preds.y")
    run = kd.evals.StandaloneLastCheckpoint()
    look = kd.evals.Evaluator(
        run=run, num_batches=1, ds=make_ds(shuffle=False), metrics={"n": norm}
    )
    return kd.train.Trainer.eval_only(evals={"look": look})


def get_toy"""
REFERENCE = """
    cfg.schedules = {"lr": optax.constant_schedule(vlue=0.1)}
    cfg.optimizer = optax.adam(cfg.ref.schedules["lr"])
    return cfg
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "platforms"), [(None, "cpu"), ("", "cpu"), ("cpu,tpu", "cpu,tpu")]
)
def test_check_uses_no_accelerator_unless_told(folder, variable, platforms):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    if variable is not None:
        environment["JAX_PLATFORMS"] = variable
    program = (
        "import jax\nfrom kauldron.main import main\n"
        "main(['check', '--cfg=good.py'])\nprint(jax.config.jax_platforms)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    assert result.stdout.splitlines()[-1] == platforms, result.stderr


def test_check_of_something_else_than_a_trainer(kauldron):
    code, out, _ = kauldron("check", "--cfg=good.py")
    assert code == 1
    assert "not a Trainer" in out


#
# data
#


def test_element_spec_of_a_data_set(kauldron):
    code, out, _ = kauldron("data", "element_spec", "--cfg=toy.py")
    assert (code, out) == (0, "x\tfloat32\t(16, 4)\ny\tfloat32\t(16, 2)\n")
    _, out, _ = kauldron(
        "data",
        "element_spec",
        "--cfg=toy.py",
        "--ds_path=eval_ds",
        "--cfg.eval_ds.batch_size=2",
        "--json",
    )
    assert json.loads(out)["x"] == {"dtype": "float32", "shape": [2, 4]}


def test_statistics_of_batches(kauldron, folder):
    code, out, _ = kauldron(
        "data", "show", "--cfg=toy.py", "--num_batches=2", "--html=batches.html"
    )
    assert code == 0
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("batch")] == [
        "batch 0",
        "batch 1",
    ]
    name, dtype, shape, low, high, mean, std = lines[1].split("\t")
    assert (name, dtype, shape) == ("x", "float32", "(16, 4)")
    assert float(low) < float(mean) < float(high)
    assert float(std) > 0
    assert (folder / "batches.html").exists()


@pytest.mark.parametrize(
    "path, words",
    [
        ("train_dss", ["'train_ds'"]),
        ("model", ["cfg.model is not a data set", "Sequential"]),
        ("evals.test.ds", ["no ds"]),
        ("workdir", ["cfg.workdir is not set"]),
    ],
)
def test_wrong_path_of_a_data_set(kauldron, path, words):
    code, out, err = kauldron("data", "show", "--cfg=toy.py", f"--ds_path={path}")
    assert (code, out) == (2, "")
    for word in words:
        assert word in err


#
# runs
#


def states(out):
    return {run["workdir"]: run["state"] for run in json.loads(out)}


def test_runs_are_listed_with_their_state(kauldron, folder):
    flags = ("--cfg=toy.py", "--cfg.evals={}", "--cfg.num_train_steps=2")
    kauldron("train", *flags, "--cfg.workdir=all/a/done")
    kauldron("train", *flags, "--cfg.workdir=all/half")
    (folder / "all/half/train_complete.txt").unlink()
    _, out, _ = kauldron("runs", "all", "--json")
    assert states(out) == {"a/done": "complete", "half": "stopped"}
    with workdir_lock(folder / "all/half"):
        _, out, _ = kauldron("runs", "all", "--json")
    assert states(out) == {"a/done": "complete", "half": "running"}
    (done,) = (run for run in json.loads(out) if run["workdir"] == "a/done")
    assert done["step"] == 2
    assert set(done["values"]) == {"train/total", "train/norm"}
    _, out, _ = kauldron("runs", "all")
    assert out.splitlines()[0].split("\t")[:3] == ["a/done", "complete", "2"]


def test_complete_run_without_checkpoints_is_listed_with_its_last_step(kauldron):
    kauldron(
        "train",
        "--cfg=toy.py",
        "--cfg.evals={}",
        "--cfg.checkpointer=None",
        "--cfg.num_train_steps=2",
        "--cfg.workdir=all/quick",
    )
    _, out, _ = kauldron("runs", "all")
    assert out.split("\t")[:3] == ["quick", "complete", "2"]


def test_run_that_has_only_begun_is_listed(kauldron, folder):
    (folder / "begun").mkdir()
    (folder / "begun/run_info.json").write_text("{half written")
    (folder / "begun/train").mkdir()
    (folder / "begun/train/scalars.jsonl").write_text('{"step": 1, "val')
    code, out, _ = kauldron("runs")
    assert (code, out) == (0, "begun\tstopped\t-\t-\t\n")


def test_no_runs(kauldron, folder):
    (folder / "empty").mkdir()
    assert kauldron("runs", "empty") == (0, "No runs below empty.\n", "")
    assert kauldron("runs", "empty", "--json")[1] == "[]\n"
    assert kauldron("runs", "missing")[0] == 2
