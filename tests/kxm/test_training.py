"""Real trainings, launched."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from kauldron import kd, konfig, kxm
from kauldron.cli.main import main
from kauldron.kxm import records
from tests.kxm.waiting import poll, text

pytestmark = pytest.mark.usefixtures("fast_python")

CONFIG = """
from kauldron import konfig

with konfig.imports():
    import optax
    from kauldron import kd
    from tests.train import toy

def get_config():
    cfg = kd.train.Trainer()
    cfg.seed = 0
    cfg.train_ds = toy.make_ds()
    cfg.eval_ds = toy.make_ds(shuffle=False, num_epochs=1)
    cfg.model = toy.Linear(x="batch.x")
    cfg.num_train_steps = 6
    cfg.log_metrics_every = 1
    cfg.log_summaries_every = None
    cfg.train_losses = {"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}
    cfg.optimizer = optax.adam(learning_rate=1e-2)
    cfg.profiler = None
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=4)
    cfg.evals = {
        "last": kd.evals.Evaluator(
            run=kd.evals.StandaloneLastCheckpoint(env_vars={"ONLY": "here"}))
    }
    return cfg
"""

EVAL_ONLY = """
from kauldron import konfig

with konfig.imports():
    from kauldron import kd
    from tests.train import toy

def get_config():
    cfg = kd.train.Trainer.eval_only()
    cfg.aux = {"xid": 1, "wid": 2}
    ds = toy.make_ds(shuffle=False, num_epochs=1)
    cfg.evals = {
        "last": kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint(), ds=ds),
    }
    return cfg
"""


@pytest.mark.slow
def test_a_sweep_trains_and_evaluates_each_unit(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))
    (tmp_path / "config.py").write_text(CONFIG)
    command = [
        "sweep",
        "--cfg=config.py",
        "--sweep.seed=0,1",
        "--cfg.num_train_steps=5",
        "--cfg.setup.tags=toy",
        "--cfg.setup.note_template=for {cfg.num_train_steps} steps",
    ]
    assert main([*command, "--xp.platform=cpu"]) == 0
    handle = kxm.get_experiment(1)
    assert handle.status() == {"succeeded": 2}
    assert [list(unit.jobs) for unit in handle.work_units] == [["train", "last"]] * 2
    assert [pathlib.Path(u.workdir).name for u in handle.work_units] == [
        "1-seed=0",
        "2-seed=1",
    ]
    configs = [kd.from_xid.get_cfg(1, wid) for wid in (1, 2)]
    flat = [konfig.flatten(cfg) for cfg in configs]
    assert {k for k in flat[0] if flat[0][k] != flat[1][k]} == {"workdir", "seed"}
    assert all(cfg.num_train_steps == 5 for cfg in configs)
    losses = [row["value"] for row in handle.results("last/losses/l2")]
    assert len(set(losses)) == 2
    assert handle.best("last/losses/l2")["value"] == min(losses)
    assert handle.work_units[0].scalars()["train/losses/total"][0] == 4
    trained = json.loads(
        pathlib.Path(handle.work_units[0].workdir, "train_complete.txt").read_text()
    )
    assert trained["step"] == 5
    capfd.readouterr()
    assert main(["xp", "status", "1"]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    assert rows[1][:2] == ["2", "succeeded"]
    assert rows[1][3] == "5"
    assert "last/loss=" in rows[1][4]
    assert kd.from_xid.get_workdir(1, 2) == pathlib.Path(handle.work_units[1].workdir)
    assert "toy" in handle.tags and handle.note == "for 5 steps"
    run = kd.xm.Experiment.from_xid(1, 2)
    assert run.wu.workdir == handle.work_units[1].workdir
    assert run.config == configs[1] and run.trainer.seed == 1
    assert run.root_dir == pathlib.Path(handle.xp_dir)
    with pytest.raises(LookupError, match="no work unit 3"):
        kd.xm.Experiment.from_xid(1, 3)
    _evaluate_again(tmp_path, losses[1])


def _evaluate_again(tmp_path, loss):
    """Launch an eval-only config for the second unit, by the id of its experiment."""
    (tmp_path / "eval_only.py").write_text(EVAL_ONLY)
    assert main(["launch", "--cfg=eval_only.py", "--xp.platform=cpu"]) == 0
    handle = kxm.get_experiment(2)
    assert [list(unit.jobs) for unit in handle.work_units] == [["last"]]
    [row] = handle.results("last/losses/l2")
    assert row["value"] == pytest.approx(loss)


@pytest.mark.slow
def test_two_processes_of_a_job_that_is_stopped_save_the_same_step(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))
    (tmp_path / "config.py").write_text(CONFIG)
    command = [
        *["launch", "--cfg=config.py", "--cfg.num_train_steps=1_000_000"],
        *["--cfg.evals={}", "--xp.platform=cpu", "--xp.executor.processes=2"],
        "--cfg.checkpointer.save_interval_steps=20",
    ]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        poll(lambda: list(tmp_path.glob("runs/1/*/checkpoints/ckpt_20")))
        handle = kxm.get_experiment(1)
        handle.stop()
        launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    [unit] = kxm.get_experiment(1).work_units
    assert unit.state == "stopped"
    logs = [text(records.log_path(unit.folder, "train", rank)) for rank in (0, 1)]
    steps = [re.findall(r"Stopped at step (\d+)", log) for log in logs]
    [step] = steps[0]
    assert steps[1] in ([], [step])  # only the first process logs by default
    newest = max(
        int(path.name.removeprefix("ckpt_"))
        for path in pathlib.Path(unit.workdir, "checkpoints").glob("ckpt_*")
    )
    assert newest == int(step)
