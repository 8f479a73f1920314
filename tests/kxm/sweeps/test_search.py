"""Adaptive search: work units that ask for their values when they start."""

import importlib.util
import math
import os
import pathlib

import pytest

from kauldron import kxm
from kauldron.kxm import records
from kauldron.kxm.engines.study import Binding
from kauldron.kxm.sweeps.search import SAMPLER_PACKAGES, Search
from tests.kxm.waiting import poll, text

optuna = pytest.importorskip(
    "optuna", reason="needs Optuna: pip install 'kauldron[optuna]'"
)

pytestmark = pytest.mark.usefixtures("fast_python")

# Its best value is at x=3; it fails, is killed or reports nothing when told to.
OBJECTIVE = """
import json, math, os, pathlib, signal, sys
from kauldron import kxm
flags = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[1:])
print(json.dumps(flags), flush=True)
wid, attempt = os.environ["KXM_WID"], os.environ["KXM_ATTEMPT"]
if flags.get("kill") == wid and attempt == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if flags.get("fail") == wid:
    raise ValueError("told to fail")
if flags.get("silent") == wid:
    kxm.report(other=1.0)
elif flags.get("nan") == wid:
    kxm.report(loss=math.nan)
else:
    kxm.report(loss=(float(flags["x"]) - 3) ** 2)
"""


@pytest.fixture
def objective(tmp_path):
    path = tmp_path / "objective.py"
    path.write_text(OBJECTIVE)
    return str(path)


def launch(target, space, *, args=None, max_parallel=3, **options):
    return kxm.Experiment(
        jobs={"main": kxm.Job(target=target, args=args or {})},
        sweep_info=kxm.Search(space, **{"method": "tpe", "metric": "loss", **options}),
        executor=kxm.Local(max_parallel=max_parallel, stream=False, backoff_s=0.0),
    ).launch()


def study_of(handle):
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(
            str(records.private(handle.xp_dir) / "study.log")
        )
    )
    return optuna.load_study(study_name="kauldron", storage=storage)


@pytest.mark.slow
def test_every_work_unit_is_one_trial_and_failures_are_told(objective):
    space = {"x": kxm.Range(0.0, 6.0), "kind": kxm.Choice([[1, 2], "a"]), "n": 5}
    args = {"fail": "2", "kill": "3", "nan": "4"}
    handle = launch(objective, space, args=args, num_trials=6)
    states = [unit.state for unit in handle.work_units]
    assert states == ["succeeded", "failed", *["succeeded"] * 4]
    trials = study_of(handle).trials
    by_wid = {trial.user_attrs["wid"]: trial for trial in trials}
    assert sorted(by_wid) == [1, 2, 3, 4, 5, 6]
    assert {w: t.state.name for w, t in by_wid.items()} == {
        1: "COMPLETE", 2: "FAIL", 3: "COMPLETE", 4: "FAIL", 5: "COMPLETE", 6: "COMPLETE",
    }  # fmt: skip
    for unit in handle.work_units:
        trial = by_wid[unit.wid]
        assert unit.sweep["x"] == trial.params["x"]
        assert unit.sweep["kind"] in ([1, 2], "a")
        assert unit.sweep["n"] == 5
        if trial.state.name == "COMPLETE":
            assert trial.value == pytest.approx((unit.sweep["x"] - 3) ** 2)
    killed = handle.work_units[2]
    assert killed.jobs["main"]["attempt"] == 2
    shown = [line for line in text(killed.log_path()).splitlines() if line[:1] == "{"]
    assert len(shown) == 2
    assert shown[0] == shown[1]  # the same values again
    best = handle.best("loss")
    complete = [t for t in trials if t.state.name == "COMPLETE"]
    assert best["wid"] == min(complete, key=lambda t: t.value).user_attrs["wid"]
    links = [p for p in handle.xp_dir.iterdir() if p.is_symlink()]
    assert len(links) == 6
    assert any(p.name.startswith("1-x=") for p in links)


@pytest.mark.slow
def test_a_missing_objective_fails_the_unit_and_names_what_is_there(objective):
    handle = launch(
        objective, {"x": kxm.Range(1, 5)}, args={"silent": "1"}, num_trials=1
    )
    status = handle.work_units[0].jobs["main"]
    assert status["state"] == "failed"
    assert "'loss'" in status["reason"]
    assert "other" in status["reason"]


@pytest.mark.slow
def test_runs_that_are_not_promising_are_pruned(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        "from kauldron import kxm\n"
        "bad = os.environ['KXM_WID'] == '5'\n"
        "for step in range(5):\n"
        "    kxm.report(loss=100.0 if bad else 1.0 / (step + 1), step=step)\n"
        "for _ in range(600 * bad): time.sleep(0.05)\n"
    )
    handle = launch(
        str(script),
        {"x": kxm.Range(0.0, 1.0)},
        num_trials=5,
        prune="median",
        max_parallel=1,
    )
    states = [unit.state for unit in handle.work_units]
    assert states == [*["succeeded"] * 4, "pruned"]
    assert [t.state.name for t in study_of(handle).trials][-1] == "PRUNED"


def test_values_after_a_failure_was_told_are_not_reported(objective, monkeypatch):
    options = {"num_trials": 1, "prune": "median"}
    space = {"x": kxm.Range(0.0, 1.0)}
    handle = launch(objective, space, args={"fail": "1"}, **options)
    [unit] = handle.work_units
    assert unit.state == "failed"
    monkeypatch.setenv("KXM_WU_DIR", str(unit.folder))
    kxm.report(loss=1.0, step=1)  # as if it was resumed
    resumed = Binding(unit.folder, records.read_unit(unit.folder), "main")
    assert not resumed.should_prune()
    assert [t.state.name for t in study_of(handle).trials] == ["FAIL"]


@pytest.mark.slow
def test_a_stopped_unit_goes_on_with_its_values(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import pathlib, sys, time\n"
        "from kauldron import kxm\n"
        "print(sys.argv[1], flush=True)\n"
        "pathlib.Path('ready').touch()\n"
        "while not pathlib.Path('released').exists(): time.sleep(0.02)\n"
        "kxm.report(loss=1.0)\n"
    )
    xp = kxm.Experiment(
        jobs={"main": kxm.Job(target=str(script))},
        sweep_info=kxm.Search(
            {"x": kxm.Range(0.0, 1.0)}, method="tpe", metric="loss", num_trials=1
        ),
        executor=kxm.Local(stream=False),
    )
    handle = xp.launch(wait=False)
    poll(pathlib.Path("ready").exists)
    handle.stop()
    poll(handle.is_done)
    handle.session.join(10, lambda: None, 0.05)
    assert [t.state.name for t in study_of(handle).trials] == ["RUNNING"]
    pathlib.Path("released").touch()
    handle.resume()
    assert handle.status() == {"succeeded": 1}
    lines = text(handle.work_units[0].log_path()).splitlines()
    values = [line for line in lines if line.startswith("--x")]
    assert len(values) == 2
    assert values[0] == values[1]
    assert [t.state.name for t in study_of(handle).trials] == ["COMPLETE"]


def test_values_come_after_the_config_and_before_the_users_flags(config):
    path = config(
        sweeps="\ndef sweep_tune():\n"
        "    return kxm.Search({'aux.lr': kxm.Range(1e-5, 1e-2, log=True),"
        " 'optimizer': kxm.Choice([optax.adam(1e-3), optax.sgd(1e-1)])},"
        " method='tpe', num_trials=4, metric='eval/metrics/accuracy', goal='max')\n"
    )
    provider = kxm.ConfigProvider.from_path(path, overrides={"seed": 3})
    xp = kxm.Experiment(
        jobs_provider=kxm.KauldronJobs(),
        sweep_info=kxm.KauldronSweep(),
        cfg_provider=provider,
        sweep="tune",
    )
    units = xp.work_units()
    assert len(units) == 4
    job = units[0].jobs["train"]
    assert units[0].search
    assert job.argv[job.search_at - 1].startswith("--cfg=")
    assert job.argv[job.search_at] == "--cfg.seed=3"
    search = xp.linked_sweep.adaptive.to_json()
    assert search["prefix"] == "cfg."
    assert [o["text"] for o in search["space"]["optimizer"]["options"]] == [
        "py::optax:adam(0.001)",
        "py::optax:sgd(0.1)",
    ]
    decided = kxm.ConfigProvider.from_path(path, overrides={"aux.lr": 0.5})
    left = xp.linked_sweep.adaptive.without({f"cfg.{p}" for p in decided.overrides})
    assert list(left.space) == ["optimizer"]


def test_spaces_that_do_not_fit_the_config_are_refused(config):
    provider = kxm.ConfigProvider.from_path(config())
    options = {"method": "tpe", "num_trials": 2, "metric": "a/b", "prefix": "cfg."}
    for space, error in [
        ({"sed": kxm.Range(0, 3)}, KeyError),
        ({"seed": kxm.Choice([1, "x"])}, TypeError),
    ]:
        xp = kxm.Experiment(
            jobs_provider=kxm.KauldronJobs(),
            cfg_provider=provider,
            sweep_info=Search(space, **options),
        )
        with pytest.raises(error, match="search space"):
            xp.launch()
    assert records.known_xids() == []


def test_adaptive_searches_stand_alone(config):
    path = config(
        sweeps="\ndef sweep():\n    yield {'seed': 1}\n"
        "def sweep_tune():\n    return kxm.Search({'aux.lr': kxm.Range(0., 1.)},"
        " method='tpe', num_trials=4, metric='m')\n"
    )
    provider = kxm.ConfigProvider.from_path(path)
    with pytest.raises(ValueError, match="cannot be combined"):
        list(kxm.KauldronSweep(sweep="tune,", cfg_provider=provider))


@pytest.mark.slow
def test_a_search_finds_the_valley(objective):
    handle = launch(objective, {"x": kxm.Range(0.0, 6.0)}, num_trials=11, seed=1)
    best = handle.best("loss")
    assert math.sqrt(best["value"]) < 1.0
    assert os.path.isfile(records.private(handle.xp_dir) / "search.json")


@pytest.mark.parametrize("method", ["gp", "cmaes", "qmc", "nsga2"])
def test_each_sampler_runs_or_says_what_to_install(objective, method):
    missing = [
        name
        for name in SAMPLER_PACKAGES.get(method, ())
        if importlib.util.find_spec(name) is None
    ]
    space = {"x": kxm.Range(0.0, 6.0), "y": kxm.Range(0.0, 1.0)}
    if missing:
        with pytest.raises(ImportError, match=f"pip install {' '.join(missing)}"):
            launch(objective, space, method=method, num_trials=3)
        assert records.known_xids() == []
        return
    handle = launch(objective, space, method=method, num_trials=3)
    assert handle.status() == {"succeeded": 3}
    trials = study_of(handle).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert len({trial.params["x"] for trial in trials}) == 3
