"""The engine `Stacked`, `kauldron sweep --stack` and `kauldron sweep --plan`."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from kauldron import kxm
from kauldron.cli.commands.stack import plan_lines, trainer_of
from kauldron.cli.main import main
from kauldron.kxm import records
from kauldron.kxm.engines.stacked import divided
from kauldron.train.stacked.plan import make_stacks
from tests.kxm.stacked import config as stacked_config
from tests.kxm.waiting import poll

pytestmark = pytest.mark.usefixtures("fast_python")

CFG = f"--cfg={stacked_config.__file__}"
ROOT = pathlib.Path(__file__).parents[3]
# Fewer and smaller programs: each step is logged, nothing evaluated and only the loss measured.
UNEVALUATED = [
    "--cfg.evals={}",
    "--cfg.log_metrics_every=1",
    "--cfg.train_metrics={}",
]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Processes find this repository, as the test does."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def kauldron(capfd):
    """Run a command; return exit code, stdout and stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


#
# Plans and bad input
#


def test_a_plan_names_the_stacks_and_what_sets_them_apart(kauldron, registry):
    code, out, _ = kauldron(
        "sweep", CFG, "--plan", "--sweep.seed=0:2", "--sweep.aux.width=4,8"
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "4 work units in 2 stacks:"
    assert "stack 1: work units 1, 3 (2); " in lines[1]
    assert "work units 2, 4 (2)" in lines[2]
    assert "differs from stack 1 in cfg.aux.width (8 instead of 4)" in lines[2]
    assert "kB; up to" in lines[1]
    assert not registry.exists()  # nothing was launched


def test_texts_that_change_no_program_are_stacked_up_to_the_largest_stack(kauldron):
    texts = "--sweep.on_nonfinite=warn,raise,ignore"
    _, out, _ = kauldron("sweep", CFG, "--plan", texts, "--xp.executor.max_units=2")
    assert out.startswith("3 work units in 2 stacks:")
    assert "stack 1: work units 1-2 (2)" in out
    assert "stack 2: work unit 3 (1); the same program as stack 1" in out


def test_the_path_that_changes_the_program_is_found_among_several(tmp_path):
    sweep = [{"cfg.seed": 0, "cfg.aux.width": 4}, {"cfg.seed": 1, "cfg.aux.width": 8}]
    provider = kxm.ConfigProvider.from_module(stacked_config)
    xp = kxm.Experiment(
        cfg_provider=provider,
        jobs_provider=kxm.KauldronJobs(),
        sweep_info=kxm.SimpleSweep(sweep),
        executor="stacked",
    )
    units = xp.work_units()
    stacks = make_stacks([trainer_of(unit) for unit in units], max_units=4)
    lines = plan_lines(units, stacks, is_detailed=True)
    assert "differs from stack 1 in cfg.aux.width (8 instead of 4)" in lines[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--xp.executor.max_unit=3"], "max_units"),
        (["--xp.executor.max_units=0"], "expected at least 1"),
        (["--xp.executor.processes=2"], "trained by one process"),
        (["--xp.executor=local"], "--stack is for the engine Stacked, not for Local"),
        (["--xp.platform=gpu=2"], "a stack lives on one"),
    ],
)
def test_what_stacked_cannot_do_is_refused(kauldron, registry, flags, message):
    code, _, err = kauldron("sweep", CFG, "--stack", "--sweep.seed=0:2", *flags)
    assert code == 2
    assert message in err
    assert not registry.exists()


def test_other_programs_are_refused(trainer):
    xp = kxm.Experiment(
        jobs={"main": kxm.Job(target=trainer)}, executor=kxm.Stacked(max_units=4)
    )
    with pytest.raises(ValueError, match="runs another program"):
        xp.launch()


def test_stacks_of_before_stay_together_when_processes_share_the_work(tmp_path):
    units = []
    for wid in range(1, 7):
        folder = tmp_path / str(wid)
        if wid in (2, 5, 6):
            path = records.private(folder) / "stack.json"
            records.write_json(path, {"stack": 2})
        unit = kxm.engines.work_units.WorkUnit(
            wid=wid, xid=1, xp_dir=tmp_path, folder=folder, workdir="", jobs={}
        )
        units.append(unit)
    parts = [[unit.wid for unit in part] for part in divided(units, 2)]
    assert sorted(wid for part in parts for wid in part) == [1, 2, 3, 4, 5, 6]
    assert any({2, 5, 6} <= set(part) for part in parts)


#
# Real processes
#


@pytest.mark.slow
def test_a_sweep_is_trained_in_stacks(kauldron):
    code, out, err = kauldron(
        "sweep",
        CFG,
        "--stack",
        "--cfg.on_nonfinite=raise",
        "--cfg.num_train_steps=2",
        "--cfg.checkpointer=None",
        *UNEVALUATED,
        "--sweep.aux.width=4,8",
        "--sweep.aux.weight=1.0,1e39",
        "--sweep.seed=3:4",
    )
    assert code == 1, err  # an infinite loss
    assert "4 work units in 2 stacks:" in out
    assert "unit 1: [1] train  loss" in out and "unit 3: [1] train  loss" in out
    xp = kxm.get_experiment(1)
    states = [unit.state for unit in xp.work_units]
    assert states == ["succeeded", "failed", "succeeded", "failed"]
    status = xp.work_units[1].jobs["train"]
    assert status["reason"] == "FloatingPointError: Loss not finite at step 0."
    assert "FloatingPointError" in xp.work_units[1].log_path().read_text()
    for unit in (xp.work_units[0], xp.work_units[2]):
        workdir = pathlib.Path(unit.workdir)
        assert (workdir / "train_complete.txt").exists()
        assert unit.scalars()["train/losses/total"][0] == 1
        assert "trained in a stack of 2" in unit.log_path().read_text()


@pytest.mark.slow
def test_a_sweep_that_was_stopped_is_resumed(tmp_path):
    flags = ["--sweep.seed=0:2", "--cfg.num_train_steps=100000", *UNEVALUATED]
    flags += ["--cfg.checkpointer.save_interval_steps=20"]
    command = [sys.executable, "-m", "kauldron.main", "sweep", CFG, "--stack", *flags]
    launcher = subprocess.Popen(command)
    try:
        checkpoints = "runs/1/*/checkpoints/ckpt_20"
        poll(lambda: len(list(tmp_path.glob(checkpoints))) == 2, seconds=200)
    finally:
        launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=100) == 143
    xp = kxm.get_experiment(1)
    assert xp.status() == {"stopped": 2}
    before = {unit.wid: _newest_step(unit) for unit in xp.work_units}
    assert len(set(before.values())) == 1

    resumed = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", "xp", "resume", "1"]
    )
    poll(
        lambda: all(_newest_step(u) > before[u.wid] for u in xp.work_units), seconds=200
    )
    xp.stop([1])
    poll(lambda: xp.work_units[0].state == "stopped", seconds=100)
    assert xp.work_units[1].state == "running"
    xp.stop()
    resumed.wait(timeout=100)
    assert xp.status() == {"stopped": 2}


def _newest_step(unit):
    names = (path.name for path in pathlib.Path(unit.workdir).glob("checkpoints/*"))
    return max(int(name[5:]) for name in names if name[5:].isdecimal())
