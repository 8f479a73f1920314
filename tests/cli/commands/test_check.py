"""`kauldron check`."""

import os
import subprocess
import sys

import jax
import pytest

from kauldron import konfig


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
        "--cfg.checkpointer.save_interval_steps=-1": "at least 1, got -1",
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


def test_check_builds_no_fields_of_the_launcher(kauldron, folder):
    """They are not resolved, and may name what is not installed here."""
    (folder / "job.py").write_text((folder / "toy.py").read_text() + JOB)
    flags = ("--cfg=job.py", "--cfg.workdir=run")
    assert kauldron("check", *flags)[0] == 0
    wrong = "--cfg.checkpointer.save_interval_steps=-1"
    code, out, _ = kauldron("check", *flags, wrong)
    assert code == 1
    assert out.splitlines()[-1] == "1 problem in job.py"
    _, _, err = kauldron("train", *flags, wrong)
    assert "at least 1, got -1" in err and "absent_launcher" not in err


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


JOB = """

get_toy = get_config
with konfig.imports(lazy=True):
    import absent_launcher


def get_config():
    cfg = get_toy()
    cfg.xm_job = {"requirements": absent_launcher.JobRequirements(ram=1)}
    return cfg
"""
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


@pytest.mark.parametrize(
    ("setting", "platforms"), [(None, "cpu"), ("", "cpu"), ("cpu,tpu", "cpu,tpu")]
)
def test_check_uses_no_accelerator_unless_told(kauldron, setting, platforms):
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", setting)
    try:
        kauldron("check", "--cfg=good.py")
        assert jax.config.jax_platforms == platforms
    finally:
        jax.config.update("jax_platforms", before)


def test_check_in_a_process_uses_no_accelerator(folder, fast_python):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
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
    assert result.stdout.splitlines()[-1] == "cpu", result.stderr


def test_check_of_something_else_than_a_trainer(kauldron):
    code, out, _ = kauldron("check", "--cfg=good.py")
    assert code == 1
    assert "not a Trainer" in out


_FOREIGN = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Model:
    width: int = 3

def make():
    open("called", "w")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_config_that_another_user_saved_is_restricted(tmp_path, monkeypatch, kauldron):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "foreign.py").write_text(_FOREIGN)
    node = {"__qualname__": "kauldron.kd:train.Trainer"}
    cfg = konfig.ConfigDict({**node, "model": {"__qualname__": "foreign:make"}})
    (tmp_path / "config.json").write_text(cfg.to_json())
    os.chown("config.json", 12345, 12345)
    for flags in ([], ["--allow=foreign"], ["--allow", "foreign:Model"]):
        code, _, told = kauldron("check", "--cfg=config.json", *flags)
        assert code == 2
        assert "cfg.model: 'foreign:make'" in told
        assert "--trust" in told
        assert not (tmp_path / "called").exists()
    kauldron("check", "--cfg=config.json", "--trust")
    assert (tmp_path / "called").exists()
    code, _, told = kauldron("check", "--cfg=config.json", "--trust", "--allow=a")
    assert code == 2
    assert "contradict" in told
