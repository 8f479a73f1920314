"""`kauldron runs`."""

import csv
import io
import json
import shutil

import pytest

from kauldron.train.run.workdir_files import workdir_lock
from tests.inspect.written_runs import write_run


def states(out):
    return {run["workdir"]: run["state"] for run in json.loads(out)}


def lines(out):
    return [line.split() for line in out.splitlines()]


@pytest.fixture
def sweep(folder):
    """Six runs: three learning rates, two seeds; the accuracy grows with the rate."""
    for index, rate in enumerate([1e-4, 1e-3, 1e-2]):
        for seed in (0, 1):
            write_run(
                folder / f"sweep/{index}_{seed}",
                config={"seed": seed, "optimizer": {"lr": rate}, "num_train_steps": 9},
                train=[{"losses/total": 2.0 - step / 10} for step in range(10)],
                test=[
                    {
                        "losses/total": 1.0,
                        "metrics/accuracy": 0.1 * index + 0.02 * seed + bonus,
                        **{f"metrics/of_class/{c}": 0.5 for c in range(10)},
                    }
                    for bonus in (0.0, 0.3, 0.1)
                ],
            )
    return "sweep"


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
    assert set(done["values"]) == {"train/loss", "train/norm"}
    assert all(isinstance(value, float) for value in done["values"].values())
    _, out, _ = kauldron("runs", "all")
    assert lines(out)[1][:3] == ["a/done", "complete", "2"]


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
    assert lines(out)[1][:3] == ["quick", "complete", "2"]


def test_how_runs_ended_is_shown(kauldron, folder):
    ends = {
        "early": {"reason": "early stopping", "detail": "test.losses.total was best"},
        "done": {"reason": "done"},
        "asked": {"reason": "preempted"},
        "broken": {"reason": "error", "error": "FloatingPointError", "detail": "..."},
        "killed": None,
    }
    for name, end in ends.items():
        workdir = write_run(folder / "all" / name, train=[{"losses/total": 1.0}])
        info = json.loads((workdir / "run_info.json").read_text())
        (workdir / "run_info.json").write_text(json.dumps({**info, "end": end}))
        if name in ("early", "done"):
            (workdir / "train_complete.txt").write_text('{"step": 9}')
    write_run(folder / "all/older", train=[{"losses/total": 1.0}])
    _, out, _ = kauldron("runs", "all")
    header, *rows = out.splitlines()
    assert header.split()[:4] == ["run", "state", "end", "step"]
    shown = {row.split()[0]: row[: header.index("step")].split()[1:] for row in rows}
    assert shown == {
        "asked": ["stopped", "preempted"],
        "broken": ["failed", "FloatingPointError"],
        "done": ["complete", "-"],
        "early": ["complete", "early", "stopping"],
        "killed": ["stopped", "killed"],
        "older": ["stopped", "-"],
    }
    _, out, _ = kauldron("runs", "all", "--where", "end == preempted", "--json")
    assert [run["workdir"] for run in json.loads(out)] == ["asked"]


def test_run_that_has_only_begun_is_listed(kauldron, folder):
    (folder / "begun").mkdir()
    (folder / "begun/run_info.json").write_text("{half written")
    (folder / "begun/train").mkdir()
    (folder / "begun/train/scalars.jsonl").write_text('{"step": 1, "val')
    code, out, _ = kauldron("runs")
    assert code == 0
    assert lines(out) == [
        ["run", "state", "step", "speed"],
        ["begun", "stopped", "-", "-"],
    ]


def test_no_runs(kauldron, folder):
    (folder / "empty").mkdir()
    assert kauldron("runs", "empty") == (0, "No runs below empty.\n", "")
    assert kauldron("runs", "empty", "--json")[1] == "[]\n"
    assert kauldron("runs", "missing")[0] == 2


def test_an_empty_name_is_the_working_directory(kauldron, folder, monkeypatch):
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    assert kauldron("runs", "")[0] == 0


def test_columns_are_aligned_and_values_of_classes_left_out(kauldron, sweep):
    _, out, _ = kauldron("runs", sweep)
    header, *rows = out.splitlines()
    assert header.split() == [
        *("run", "state", "step", "speed", "seed", "lr"),
        *("train/loss", "test/loss", "test/loss:best"),
        *("test/accuracy", "test/accuracy:best"),
    ]
    assert len(rows) == 6 and {len(row) for row in rows} == {len(header)}
    _, out, _ = kauldron("runs", sweep, "--metrics=test/of_class/3")
    assert lines(out)[0][-2:] == ["test/of_class/3", "test/of_class/3:best"]


def test_best_and_last_differ(kauldron, sweep):
    _, out, _ = kauldron("runs", sweep, "--json", "--where=run == 0_0")
    (run,) = json.loads(out)
    assert run["values"]["test/accuracy"] == pytest.approx(0.1)
    assert run["values"]["test/accuracy:best"] == pytest.approx(0.3)
    assert run["fields"] == {"seed": 0, "lr": 1e-4}


def test_where_and_sort(kauldron, sweep):
    _, out, _ = kauldron(
        "runs", sweep, "--where", "lr >= 1e-3 and seed == 0", "--sort=test/accuracy"
    )
    assert [row[0] for row in lines(out)[1:]] == ["2_0", "1_0"]
    _, out, _ = kauldron("runs", sweep, "--sort", "-test/metrics/accuracy:best")
    assert lines(out)[1][0] == "0_0"
    _, out, _ = kauldron("runs", sweep, "--where", "lr > 1")
    assert out == "None of the 6 runs is one where lr > 1.\n"


def test_groups_have_mean_and_deviation(kauldron, sweep):
    _, out, _ = kauldron("runs", sweep, "--group=seed", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["runs"] for row in rows] == ["2", "2", "2"]
    assert float(rows[0]["test/accuracy"]) == pytest.approx(0.11)
    assert float(rows[0]["test/accuracy:deviation"]) == pytest.approx(0.02 / 2**0.5)
    _, out, _ = kauldron("runs", sweep, "--group=seed", "--metrics=test/accuracy")
    assert "0.11 ± 0.014" in out


def test_latex_has_numbers_and_escaped_names(kauldron, sweep):
    _, out, _ = kauldron("runs", sweep, "--latex", "--metrics=test/accuracy:best")
    assert out.startswith(r"\begin{tabular}{llrrrrr}")
    assert r"0\_0 & stopped & 9 & -- & 0 & 0.0001 & 0.3 \\" in out
    assert r"\textbf{0.52}" in out


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--sort=test/acuracy", "Did you mean 'test/accuracy'?"),
        ("--metrics=accuracy", "Did you mean 'test/accuracy'?"),
        ("--where=lrr > 1", "No run has a column 'lrr'"),
        ("--group=sead", "Did you mean 'seed'?"),
        ("--group=test/accuracy", "is not. What differs: seed, lr."),
        ("--where=lr >", "it ends too early"),
        ("--where=__import__('os')", "No run has a column '__import__'"),
    ],
)
def test_mistakes_are_explained(kauldron, sweep, flag, message):
    code, _, err = kauldron("runs", sweep, flag)
    assert code == 2
    assert message in err
