"""`kauldron train`: exit codes, the closing table, what stops a run."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from kauldron import konfig
from kauldron.main import main
from kauldron.train.run.workdir_files import workdir_lock
from tests.compilation import quick_environment

TOY = ("--cfg=toy.py", "--cfg.workdir=run")
SHORT = ("--cfg.num_train_steps=1", "--cfg.checkpointer=None")


def steps(folder):
    return sorted(
        int(p.name.removeprefix("ckpt_")) for p in folder.glob("checkpoints/ckpt_*")
    )


@pytest.mark.parametrize("words", [(), ("run", "train")])
def test_training_prints_the_last_values_and_where_everything_is(
    kauldron, folder, words
):
    code, out, _ = kauldron(*words, *TOY, "--cfg.num_train_steps=3")
    assert code == 0
    *rows, last = out.splitlines()
    assert last == "Everything is in run"
    table = {tuple(row.split("\t")[:3]) for row in rows}
    assert ("train", "2", "losses/l2") in table
    assert ("train", "2", "metrics/norm") in table
    assert ("test", "3", "losses/total") in table
    assert steps(folder / "run")[-1] == 3


def test_run_that_is_complete_is_left_alone(kauldron, folder):
    flags = (*TOY, "--cfg.num_train_steps=1")
    assert kauldron("train", *flags)[0] == 0
    before = (folder / "run/train/scalars.jsonl").read_bytes()
    code, out, _ = kauldron("train", *flags)
    assert code == 0
    assert "Everything is in run" in out
    assert (folder / "run/train/scalars.jsonl").read_bytes() == before


def test_saved_config_continues_the_run(kauldron, folder):
    flags = ("--cfg.num_train_steps=2", "--cfg.stop_after_steps=1")
    assert kauldron("train", *TOY, *flags)[0] == 0
    assert steps(folder / "run")[-1] == 1
    code, _, _ = kauldron("train", "--cfg=run", "--cfg.stop_after_steps=None")
    assert code == 0
    assert steps(folder / "run")[-1] == 2


def test_overrides_reach_the_config_of_the_run(kauldron, folder):
    flags = ("--cfg.seed=7", "--cfg.optimizer=py::optax.sgd(0.5)", "--cfg.evals={}")
    assert kauldron("train", *TOY, *SHORT, *flags)[0] == 0
    cfg = konfig.ConfigDict.from_json((folder / "run/config.json").read_text())
    assert cfg.seed == 7
    assert cfg.optimizer.__qualname__ == "optax:sgd"


def test_positional_arguments_of_a_config_are_overridden_by_name(kauldron, folder):
    flags = ("--cfg.optimizer.learning_rate=0.5", "--cfg.evals.test.run.n=3")
    code, _, err = kauldron("train", *TOY, *SHORT, *flags)
    assert code == 0, err
    cfg = konfig.ConfigDict.from_json((folder / "run/config.json").read_text())
    assert cfg.optimizer.to_dict() == {"__qualname__": "optax:adam", "0": 0.5}
    assert [key for key in cfg.evals.test.run if key != "__qualname__"] == ["0"]
    assert cfg.evals.test.run[0] == 3


@pytest.mark.parametrize("how, code", [("SIGTERM", 143), ("SIGUSR1", 0)])
def test_run_that_is_asked_to_stop_saves_first(kauldron, folder, how, code):
    with pytest.raises(SystemExit) as stopped:
        kauldron("train", "--cfg=stopping.py", *TOY[1:], f"--cfg.evals.stop.how={how}")
    assert stopped.value.code == code
    assert steps(folder / "run")[-1] == 3  # the evaluation at step 2 was finished
    assert not (folder / "run/train_complete.txt").exists()


def test_ctrl_c_saves_and_exits_130(kauldron, folder):
    code, out, err = kauldron(
        "train", "--cfg=stopping.py", *TOY[1:], "--cfg.evals.stop.how=SIGINT"
    )
    assert code == 130
    assert "Interrupted. Stopped at step 3" in err
    assert "Traceback" not in err
    assert steps(folder / "run")[-1] == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_error_of_a_run_is_raised(kauldron):
    with pytest.raises(RuntimeError, match="Evaluator stop failed at step 2: out of"):
        kauldron("train", "--cfg=stopping.py", *TOY[1:])


ENDINGS = {
    "too little data": (
        ("--cfg.train_ds.num_epochs=1", "--cfg.num_train_steps=50"),
        "error: The training data ended after 4 batches, at step 4 of 50. Set",
    ),
    "loss that is not finite": (
        (
            "--cfg.optimizer=py::optax.sgd(1e30)",
            "--cfg.on_nonfinite=raise",
            "--cfg.num_train_steps=9",
        ),
        "error: Loss not finite at step",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_end_that_no_code_is_to_blame_for_is_told_in_a_line(kauldron, capsys, ending):
    flags, message = ENDINGS[ending]
    with pytest.raises(SystemExit) as stopped:
        kauldron("train", *TOY, *flags)
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_workdir_of_another_job_is_told_in_a_line(kauldron, capsys, folder):
    (folder / "run").mkdir()
    with workdir_lock(folder / "run"), pytest.raises(SystemExit) as stopped:
        kauldron("train", *TOY)
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert "error: Another training job uses run: process" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("flag", ["--catch_post_mortem", "--catch_post_mortem=true"])
def test_debugger_opens_where_the_error_was_raised(kauldron, monkeypatch, flag):
    frames = []

    def debug(traceback):
        while traceback.tb_next:
            traceback = traceback.tb_next
        frames.append(traceback.tb_frame.f_code.co_name)

    monkeypatch.setattr("pdb.post_mortem", debug)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    with pytest.raises(RuntimeError, match="out of coffee"):
        kauldron("train", "--cfg=stopping.py", *TOY[1:], flag)
    assert frames == ["evaluate"]


def test_debugger_stays_closed_where_nobody_can_answer(folder, fast_python):
    reader, writer = os.pipe()  # open, and nothing ever comes
    result = run_process(
        *("--cfg=stopping.py", *TOY[1:], "--catch_post_mortem"),
        cwd=folder,
        stdin=reader,
    )
    os.close(reader)
    os.close(writer)
    assert result.returncode == 1
    assert "out of coffee" in result.stderr
    assert "(Pdb)" not in result.stdout


MISTAKES = {
    "no workdir": (("--cfg=toy.py",), ["--cfg.workdir=path/to/run"]),
    "workdir is a file": (
        ("--cfg=toy.py", "--cfg.workdir=good.py"),
        ["The workdir cannot be written", "`cfg.workdir`", "'good.py'"],
    ),
    "workdir below a file": (
        ("--cfg=toy.py", "--cfg.workdir=good.py/run"),
        ["The workdir cannot be written", "Not a directory", "'good.py/run'"],
    ),
    "not a trainer": (
        ("--cfg=good.py",),
        ["good.py describes a dict", "kd.train.Trainer()"],
    ),
    "every problem at once": (
        (*TOY, "--cfg.optimizer.b3=1", "--cfg.modle=1"),
        ["cfg.optimizer.b3", "cfg.modle", "'model'"],
    ),
    "every field at once": (
        (*TOY, "--cfg.num_train_steps=-1", "--cfg.schedules.lr=3"),
        [
            "cfg.num_train_steps: `trainer.num_train_steps` must be at least 0, got -1",
            "set by --cfg.num_train_steps=-1",
            "cfg.schedules.lr: `trainer.schedules['lr']` must be a function of the step",
        ],
    ),
    "no such parameter": (
        (*TOY, "--cfg.optimizer.learning_rat=1e-3"),
        ["'learning_rat'", "Did you mean 'learning_rate'?", "learning_rate, b1, b2"],
    ),
    "field as a flag": (
        ("--cfg=toy.py", "--workdir=run"),
        ["'--workdir=run' is not understood. Did you mean --cfg.workdir=run?"],
    ),
    "field as a flag, value after a space": (
        (*TOY, "--num_train_steps", "3"),
        ["Did you mean --cfg.num_train_steps=3?"],
    ),
    "field as a flag, misspelt": (
        (*TOY, "--num_train_step=3"),
        ["Did you mean --cfg.num_train_steps=3?"],
    ),
    "part of a field as a flag": (
        (*TOY, "--train_ds.batch_size=3"),
        ["Did you mean --cfg.train_ds.batch_size=3?"],
    ),
    "unknown evaluator": ((*TOY, "--eval_names=tset"), ["'tset'", "test, alone"]),
    "neither true nor false": ((*TOY, "--distributed=maybe"), ["--distributed"]),
    "jax setting misspelt": ((*TOY, "--jax_debug_nan"), ["--jax_debug_nans?"]),
    "jax setting of a wrong type": (
        (*TOY, "--jax_numpy_rank_promotion=often"),
        ["--jax_numpy_rank_promotion=often"],
    ),
    "patch misspelt": ((*TOY, "--patch.skip_evl"), ["--patch.skip_eval?"]),
    "patch of a wrong type": (
        (*TOY, "--patch.stop_after_steps=many"),
        ["stop_after_steps must be a number", "'many'"],
    ),
    "patch that is True or False": (
        (*TOY, "--patch.skip_eval=3"),
        ["skip_eval must be True or False"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_explained_and_exits_2(kauldron, folder, mistake):
    arguments, words = MISTAKES[mistake]
    code, out, err = kauldron("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    for word in words:
        assert word in err
    assert not (folder / "run").exists()


def test_key_that_leads_nowhere_is_told_without_a_traceback(kauldron):
    code, _, err = kauldron("train", *TOY, "--cfg.train_losses.l2.preds=pred.y")
    assert code == 2
    message = err[err.index("error: ") :]
    assert message.startswith("error: cfg.train_losses.l2: ")
    assert "set by --cfg.train_losses.l2.preds=pred.y" in message
    assert "Did you mean: 'preds', 'batch.y', 'preds.y'?" in message
    assert "Traceback" not in err


# What `train` refuses and `check` finds, in the same words.
REFUSED = {
    "metric that nothing measures": (
        ("--cfg.checkpointer.best_metric_path=test.nrom",),
        "cfg.checkpointer.best_metric_path: nothing measures 'test.nrom'. Did you mean "
        "'test.norm'?",
    ),
    "missing checkpoint": (
        ("--cfg.init_transform=py::kd.ckpts.PartialKauldronLoader(workdir='nowhere')",),
        "cfg.init_transform: There is no checkpoint in ",
    ),
    "average that is not kept": (
        ("--cfg.evals.test.init_transform=py::kd.optim.UseEmaParams()",),
        "cfg.evals.test.init_transform: UseEmaParams: no EmaParamsState found",
    ),
    "endless evaluation": (
        ("--cfg.eval_ds.num_epochs=None",),
        "cfg.evals.test: The data of evaluator 'test' repeats forever: set",
    ),
    "no losses": (
        ("--cfg.train_losses={}",),
        "cfg.train_losses: `trainer.train_losses` is empty",
    ),
    "library of the writer": (
        ("--cfg.writer=py::kd.contrib.train.WandbWriter()",),
        "cfg.writer: kd.contrib.train.WandbWriter needs W&B: pip install",
    ),
    "no number of steps": (
        ("--cfg.num_train_steps=None",),
        "cfg.num_train_steps: `trainer.num_train_steps` is None and",
    ),
    "shapes that differ": (
        ("--cfg.model.layers=py::[flax.linen.Dense(3)]",),
        "cfg.train_losses.l2: L2(preds='preds.y': float32 (16, 3), targets=",
    ),
    "workdir that cannot be": (
        ("--cfg.workdir=good.py/run",),
        "The workdir cannot be written; set another `cfg.workdir` (Not a directory)",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_train_refuses_is_found_by_check(kauldron, folder, mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # whether it is installed or not
    flags, message = REFUSED[mistake]
    code, found, _ = kauldron("check", *TOY, *flags)
    assert code == 1
    assert found.splitlines()[-1] == "1 problem in toy.py"
    code, _, err = kauldron("train", *TOY, *flags)
    assert code == 2
    refused = err[err.index("error: ") :].removeprefix("error: ").strip()
    assert message in refused
    assert refused == found[: found.rindex("1 problem")].strip()
    assert not (folder / "run").exists()


def test_checkpoint_of_another_model_is_told_in_a_few_lines(kauldron, folder):
    flags = ("train", *TOY, "--cfg.train_losses.l2.targets=preds.y")
    assert kauldron(*flags, "--cfg.num_train_steps=1")[0] == 0
    code, _, err = kauldron(*flags, "--cfg.model.layers=py::[flax.linen.Dense(3)]")
    assert code == 2
    message = err[err.index("error: ") :]
    assert message.startswith("error: cfg.workdir: Restoring ")
    assert "params.layers_0.kernel: model (4, 3) vs checkpoint (4, 2)" in message
    assert "Traceback" not in err


def test_line_of_the_model_that_fails_is_shown(kauldron, folder):
    (folder / "fails.py").write_text(
        (folder / "toy.py").read_text().replace("def arrays", MODEL_THAT_FAILS, 1)
    )
    code, _, err = kauldron("train", "--cfg=fails.py", *TOY[1:], MODEL_FLAG)
    assert code == 2
    line = (
        "\n  TypeError raised at fails.py:22, in __call__\n    return {'y': x + None}"
    )
    assert "error: cfg.model: Initialising Fails failed: " in err
    assert line in err
    assert "Traceback" not in err


MODEL_FLAG = "--cfg.model=py::cfg_config.Fails(x='batch.x')"
MODEL_THAT_FAILS = """
import flax
from kauldron import kontext

class Fails(flax.linen.Module):
    x: kontext.Key = kontext.REQUIRED

    def __call__(self, x):
        return {'y': x + None}

def arrays"""


def test_warnings_are_shown_apart_from_problems(kauldron):
    flags = (
        "--cfg.checkpointer.best_metric_path=test.norm",
        "--cfg.evals.test.run=py::kd.evals.Once(3)",
    )
    code, out, _ = kauldron("check", *TOY, *flags)
    assert code == 0
    assert out.startswith("warning: cfg.checkpointer.best_metric_path: 'test.norm' is")
    assert "\n  set by --cfg.checkpointer.best_metric_path=test.norm\n" in out
    assert out.splitlines()[-1].startswith("No problems found in toy.py")


def test_settings_of_jax_can_be_given(kauldron):
    import jax

    assert not jax.config.jax_log_compiles
    try:
        code, _, err = kauldron(
            "config", "check", "--cfg=good.py", "--jax_log_compiles"
        )
        assert (code, err) == (0, "")
        assert jax.config.jax_log_compiles
        kauldron("config", "check", "--cfg=good.py", "--jax_log_compiles=false")
        assert not jax.config.jax_log_compiles
    finally:
        jax.config.update("jax_log_compiles", False)


#
# Config files beside other modules
#


@pytest.fixture
def project(tmp_path):
    """A config file that imports a module beside it, in both possible ways."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kauldron_test_sibling.py").write_text(
        "SIZE = 5\ndef make(n): return [n]\n"
    )
    (folder / "config.py").write_text(
        "from kauldron import konfig\n"
        "import kauldron_test_sibling as plain\n"
        "with konfig.imports():\n"
        "    import kauldron_test_sibling\n"
        "def get_config():\n"
        "    made = kauldron_test_sibling.make(plain.SIZE)\n"
        "    return konfig.ConfigDict({'made': made})\n"
    )
    before = list(sys.path)
    yield folder
    sys.path[:] = before
    sys.modules.pop("kauldron_test_sibling", None)


def test_config_file_imports_what_lies_beside_it(kauldron, project):
    code, out, err = kauldron("config", "resolve", f"--cfg={project}/config.py")
    assert (code, err) == (0, "")
    assert "'made': [5]" in out
    # Last, so that they hide nothing; the folder around it is where we are.
    assert sys.path[-2:] == [str(project), os.getcwd()]
    kauldron("config", "resolve", f"--cfg={project}/config.py")
    assert sys.path.count(str(project)) == 1


def test_sibling_hides_no_installed_module(project, kauldron):
    (project / "json.py").write_text("raise ImportError('the wrong json')\n")
    (project / "kauldron_test_sibling.py").write_text(
        "import json\nSIZE = json.loads('5')\ndef make(n): return n\n"
    )
    assert kauldron("config", "resolve", f"--cfg={project}/config.py")[0] == 0


@pytest.fixture
def layout(folder, monkeypatch):
    """A project with `configs/`, and a folder elsewhere to start in."""
    (folder / "project/configs").mkdir(parents=True)
    (folder / "start").mkdir()
    source = (folder / "toy.py").read_text().replace("cfg_config", "kauldron_parts")
    (folder / "project/configs/exp.py").write_text(source)
    monkeypatch.chdir(folder / "start")
    yield folder
    sys.modules.pop("kauldron_parts", None)


PARTS = """
import numpy
def arrays():
    x = numpy.ones((64, 4), "float32")
    return {"x": x, "y": x[:, :2]}
"""


EVAL = ("-m", "kauldron.main", "eval", "--workdir=run")
RESUME = ("-m", "kauldron.main", "--cfg=run", "--cfg.num_train_steps=2")
RESOLVE = ("-c", "from kauldron import kd; kd.from_workdir.get_trainer('run')")


@pytest.mark.slow
@pytest.mark.parametrize(
    "where, later",
    [
        ("project", [EVAL]),
        ("project/configs", [RESOLVE, EVAL]),
        ("start", [RESUME]),
    ],
)
def test_modules_of_the_project_are_found_then_and_later(
    layout, where, later, fast_python
):
    (layout / where / "kauldron_parts.py").write_text(PARTS)
    config = layout / "project/configs/exp.py"
    flags = ["--cfg.workdir=run", "--cfg.num_train_steps=1"]
    assert main(["train", f"--cfg={config}", *flags]) == 0
    # -P: as for a console command, where we are is not on the path by itself.
    for arguments in later:
        command = [sys.executable, "-P", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr


def test_modules_around_a_config_are_not_looked_at_before_installed_ones(layout):
    (layout / "start/kauldron_parts.py").write_text(PARTS)
    for folder in ("project", "project/configs", "start"):
        (layout / folder / "optax.py").write_text("raise ImportError('not this one')")
    config = layout / "project/configs/exp.py"
    assert main(["config", "resolve", f"--cfg={config}"]) == 0
    nearest_first = [str(config.parent), str(config.parent.parent), os.getcwd()]
    assert sys.path[-3:] == nearest_first


def test_folders_that_a_run_names_are_not_used_for_configs_that_are_not_trusted(
    layout,
):
    from kauldron import kd

    (layout / "project/kauldron_parts.py").write_text(PARTS)
    cfg = konfig.ConfigDict({"model": {"__qualname__": "kauldron_parts:arrays"}})
    (layout / "config.json").write_text(cfg.to_json())
    folders = {"import_folders": [str(layout / "project"), str(layout / "gone")]}
    (layout / "run_info.json").write_text(json.dumps(folders))
    with pytest.raises(ModuleNotFoundError):
        kd.from_workdir.get_resolved(layout, "model", allow=["kauldron_parts"])
    assert len(kd.from_workdir.get_resolved(layout, "model")) == 2


#
# In a process of its own
#


def run_process(*arguments, cwd, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "kauldron.main", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        stdin=stdin,
        env={**os.environ, **quick_environment()},
    )


@pytest.mark.slow
def test_process_trains_and_another_evaluates(kauldron, folder):
    result = run_process(*TOY, "--cfg.num_train_steps=3", "--cfg.seed=1", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "Everything is in run"
    complete = json.loads((folder / "run/train_complete.txt").read_text())
    assert complete["step"] == 3
    assert kauldron(*TOY, "--eval_names=alone")[0] == 0
    (line,) = (folder / "run/alone/scalars.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 3


def test_process_that_fails_exits_1_with_a_traceback(folder, fast_python):
    result = run_process("--cfg=stopping.py", *TOY[1:], cwd=folder)
    assert result.returncode == 1
    assert (
        "RuntimeError: Evaluator stop failed at step 2: out of coffee" in result.stderr
    )


def test_console_command_is_installed(folder):
    script = pathlib.Path(sys.executable).parent / "kauldron"
    if not script.exists():
        pytest.skip("the package is not installed: no console command")
    result = subprocess.run(
        [script, "--help"], capture_output=True, text=True, check=True, cwd=folder
    )
    assert "kauldron <command> --cfg=config.py" in result.stdout


def test_package_itself_can_be_run(folder):
    result = subprocess.run(
        [sys.executable, "-m", "kauldron", "config", "show", "--cfg=nowhere.py"],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert result.returncode == 2
    assert "nowhere.py" in result.stderr


@pytest.mark.slow
def test_each_command_works_in_a_process(folder, monkeypatch, fast_python):
    monkeypatch.setenv("KAULDRON_HOME", str(folder / "home"))
    monkeypatch.setenv("KAULDRON_ROOT_DIR", str(folder / "experiments"))
    (folder / "fit.py").write_text("from kauldron import kxm; kxm.report(loss=1)")
    commands = [
        ["train", *TOY, "--cfg.num_train_steps=1"],
        ["eval", "--list", *TOY],
        ["check", "--cfg=toy.py"],
        ["runs", "."],
        ["config", "show", "--cfg=toy.py"],
        ["data", "profile", "--cfg=toy.py", "--seconds=0.05"],
        ["config", "resolve", "--cfg=toy.py"],
        ["config", "check", "--cfg=toy.py"],
        ["config", "diff", "--cfg=toy.py", "--other=toy.py"],
        ["config", "paths", "--cfg=toy.py"],
        ["data", "element_spec", "--cfg=toy.py"],
        ["data", "show", "--cfg=toy.py"],
        ["run", "train", "--cfg=toy.py", "--patch"],
        ["run", "eval", "--workdir=run", "--eval_names=alone"],
        ["run", "eval_shape", "--cfg=toy.py"],
        ["run", "memory", "--cfg=toy.py"],
        ["launch", "--xp=single", "--xp.target=fit.py"],
        ["sweep", "--cfg=toy.py", "--sweep.seed=0,1", "--dry"],
        ["xp", "list"],
        ["xp", "status", "1"],
        ["xp", "logs", "1"],
        ["xp", "stop", "1"],
        ["xp", "resume", "1"],
        ["xp", "best", "1", "--metric=loss"],
        ["xp", "show", "1"],
        ["xp", "note", "1", "done"],
        ["test", "run"],
        ["report", "run", "--traceback", "-o", "report.html"],
        ["board", "--help"],
        ["init", "new_project"],
        ["completion", "bash"],
    ]
    from kauldron.cli import COMMANDS

    named = {tuple(words) for words in COMMANDS}
    assert named <= {tuple(c[:1]) for c in commands} | {tuple(c[:2]) for c in commands}
    program = (
        "import json, sys; from kauldron.main import main\n"
        f"for command in {commands!r}:\n"
        "    code = main(command)\n"
        "    assert code == 0, (command, code)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **quick_environment()},
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_main_takes_the_arguments_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kauldron", "--help"])
    assert main() == 0
    assert "Commands:" in capsys.readouterr().out
