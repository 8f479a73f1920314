"""`kauldron runs`."""

import json
import shutil

from kauldron.train.run.workdir_files import workdir_lock


def states(out):
    return {run["workdir"]: run["state"] for run in json.loads(out)}


def test_runs_are_listed_with_their_state(kauldron, folder):
    flags = ("--cfg=toy.py", "--cfg.evals={}", "--cfg.num_train_steps=2")
    kauldron("train", *flags, "--cfg.workdir=all/a/done")
    shutil.copytree(folder / "all/a/done", folder / "all/half")
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
