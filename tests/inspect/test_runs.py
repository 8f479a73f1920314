"""Reading workdirs: logs that grow, break or are long; tables of them."""

import json
import math
import sys

import numpy as np
import pytest

from kauldron import kd
from kauldron.inspect.run_folder import Run, find_runs
from kauldron.inspect.scalar_log import ScalarLog
from tests.inspect.written_runs import append_values, write_run


@pytest.fixture
def log(tmp_path):
    append_values(tmp_path, [{"loss": float(step)} for step in range(10_000)])
    return ScalarLog(tmp_path / "scalars.jsonl")


def test_growing_log_is_read_on(log):
    assert log.extremes()["loss"].high == 9999
    append_values(log.path.parent, [{"loss": -1.0}, {"loss": 2e4}], first=10_000)
    extremes = log.extremes()["loss"]
    assert (extremes.low, extremes.low_step) == (-1, 10_000)
    assert (extremes.high, extremes.high_step) == (2e4, 10_001)
    assert log.last() == {"loss": (10_001, 2e4)}


def test_replaced_log_is_read_from_its_start(log):
    log.extremes()
    log.path.unlink()
    append_values(log.path.parent, [{"acc": 0.5}])
    assert list(log.extremes()) == ["acc"]
    assert list(log.last()) == ["acc"]


def test_half_of_a_line_is_read_once_it_is_whole(log):
    log.extremes()
    line = json.dumps({"step": 10_000, "time": 0, "values": {"loss": 1e6}}) + "\n"
    with log.path.open("a") as file:
        file.write(line[:20])
        file.flush()
        assert log.extremes()["loss"].high == 9999
        file.write(line[20:])
    assert log.extremes()["loss"].high == 1e6


def test_damaged_lines_are_left_out(tmp_path):
    append_values(tmp_path, [{"loss": 1.0}])
    with (tmp_path / "scalars.jsonl").open("ab") as file:
        file.write(b'\xff\x00garbage\n[1]\n{"step": "x", "time": 0, "values": {}}\n')
    append_values(tmp_path, [{"loss": "nan"}, {"loss": 2.0}], first=1)
    series = ScalarLog(tmp_path / "scalars.jsonl").series(["loss"])["loss"]
    np.testing.assert_array_equal(series.steps, [0, 1, 2])
    np.testing.assert_array_equal(series.values, [1, math.nan, 2])


def test_long_log_is_sampled_over_its_length(log):
    series = log.sampled(["loss"], 100)["loss"]
    assert 90 <= len(series.steps) <= 100
    assert series.steps[0] == 0 and series.steps[-1] == 9999
    assert np.diff(series.steps).max() < 250


def test_stretch_of_a_log_is_sampled_with_its_neighbours(log):
    steps = log.sampled(["loss"], 1000, first=500, last=520)["loss"].steps
    assert steps[0] <= 500 and steps[-1] >= 520
    assert set(range(500, 521)) <= set(steps) and len(steps) < 25
    times = log.sampled(["loss"], 50, first=1.7e9 + 30, by="time")["loss"].times
    assert times[0] <= 1.7e9 + 30 and times[-1] == 1.7e9 + 9999


def test_thinned_curve_keeps_a_spike(tmp_path):
    values = [{"loss": 1.0 if step != 777 else 50.0} for step in range(5000)]
    append_values(tmp_path, values)
    series = ScalarLog(tmp_path / "scalars.jsonl").series(["loss"])["loss"].thinned(200)
    assert len(series.values) <= 202
    assert series.values.max() == 50 and 777 in series.steps


def test_missing_log_is_empty(tmp_path):
    log = ScalarLog(tmp_path / "none.jsonl")
    assert (log.last(), log.extremes(), log.series(["a"])) == ({}, {}, {})
    assert log.sampled(["a"], 10) == {}


def test_runs_are_found_in_nested_folders_in_natural_order(tmp_path):
    for name in ("12/1", "12/2", "12/10", "alone"):
        write_run(tmp_path / name, train=[{"losses/total": 1.0}])
    names = [run.name for run in find_runs(tmp_path)]
    assert names == ["12/1", "12/2", "12/10", "alone"]
    assert [run.name for run in find_runs(tmp_path / "12/10")] == ["10"]


def test_work_unit_that_failed_says_so(tmp_path):
    workdir = write_run(tmp_path / "a")
    (workdir / ".kxm/status").mkdir(parents=True)
    (workdir / ".kxm/status/train.json").write_text('{"state": "failed"}')
    assert Run(name="a", workdir=workdir).state == "failed"


def test_frame_of_runs(tmp_path):
    pandas = pytest.importorskip("pandas")
    for seed in (0, 1):
        write_run(
            tmp_path / f"{seed}",
            config={"seed": seed, "model": {"__qualname__": "a:Net", "width": 8}},
            test=[{"metrics/accuracy": 0.5 + seed / 10}],
        )
    frame = kd.inspect.runs(tmp_path, fields="seed,model.width", sort="test/accuracy")
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["seed"]) == [1, 0]
    assert list(frame["model.width"]) == [8, 8]
    assert list(frame["test/accuracy:best"]) == [0.6, 0.5]
    assert "model.width" in kd.inspect.runs(tmp_path, fields="model.*")
    with pytest.raises(KeyError, match="Did you mean 'seed'"):
        kd.inspect.runs(tmp_path, group="sed")


def test_experiments_with_little_in_common_show_the_fields_of_both(tmp_path):
    write_run(tmp_path / "a", config={"seed": 0, "a": {f"x{i}": i for i in range(20)}})
    write_run(tmp_path / "b", config={"seed": 1, "b": {f"y{i}": i for i in range(20)}})
    assert list(kd.inspect.runs(tmp_path))[4:] == ["seed"]
    assert list(kd.inspect.runs(tmp_path, fields="x1?"))[4:6] == ["x10", "x11"]


def test_value_in_several_places_of_a_config_is_one_column(tmp_path):
    for seed, rate in ((0, 0.1), (1, 0.1), (0, 0.2), (1, 0.2)):
        adam = {"__qualname__": "optax:adam", "0": rate, "__id__": seed}
        config = {"optimizer": adam, "aux": {"lr": rate}, "seed": seed}
        config["train_ds"] = {"seed": seed}
        write_run(
            tmp_path / f"{rate}-{seed}", config=config, train=[{"metrics/m": seed}]
        )
    frame = kd.inspect.runs(tmp_path)
    assert [c for c in frame if c not in ("run", "state", "step", "speed")] == [
        "lr",
        "seed",
        "train/m",
    ]
    assert "optimizer.0" in kd.inspect.runs(tmp_path, fields="optimizer.0")
    grouped = kd.inspect.runs(tmp_path, group="seed")
    assert grouped["runs"].tolist() == [2, 2]
    assert grouped["lr"].tolist() == [0.1, 0.2]


def test_reading_runs_loads_no_array_compiler(tmp_path):
    import subprocess

    write_run(tmp_path / "a", train=[{"losses/total": 1.0}])
    script = (
        "import sys; from kauldron import cli; cli.main(['runs', sys.argv[1]]);"
        "print('jax' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "False"
