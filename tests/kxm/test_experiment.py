"""Experiments: what is planned, what is refused, what is written."""

import json
import logging
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from kauldron import konfig, kxm
from kauldron.konfig.overrides import config_files
from kauldron.kxm import records
from kauldron.kxm.runner import Runner
from tests.kxm.waiting import text

ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def kd_experiment(path, overrides=None, **params):
    return kxm.Experiment(
        jobs_provider=kxm.KauldronJobs(),
        cfg_provider=kxm.ConfigProvider.from_path(path, overrides=overrides),
        **params,
    )


def cfg_flags(unit, job="train"):
    return [a for a in unit.jobs[job].argv if a.startswith("--cfg")]


def test_flags_of_the_user_reach_every_job(config):
    body = (
        "cfg.evals = {'a': kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint())}"
    )
    [unit] = kd_experiment(config(body), {"num_train_steps": 7}).work_units()
    assert list(unit.jobs) == ["train", "a"]
    for job in unit.jobs:
        assert "--cfg.num_train_steps=7" in cfg_flags(unit, job)
        assert f"--cfg.workdir={unit.workdir}" in cfg_flags(unit, job)


def test_the_order_is_config_arguments_sweep_flags_rest(config):
    xp = kd_experiment(
        config(),
        {"aux.lr": 0.5},
        sweep_info=kxm.SimpleSweep([{"cfg.seed": 3, "other": 1}]),
    )
    [unit] = xp.work_units()
    names = [a.partition("=")[0] for a in unit.jobs["train"].argv[3:]]
    assert names == ["--cfg", "--cfg.seed", "--cfg.aux.lr", "--cfg.workdir", "--other"]


@pytest.mark.parametrize(
    "items, error, message",
    [
        (
            [{"cfg.seed": 0}, {"cfg.sed": 0}],
            KeyError,
            "Work unit 2.*Did you mean 'seed'",
        ),
        ([{"cfg.aux.tga": 0}], KeyError, r"cfg\.aux\.tga.*Did you mean 'tag'"),
        ([{"cfg.optimizer.lr": 0}], KeyError, "learning_rate"),
        ([{"cfg.no.thing": 0}], KeyError, "cfg has no no"),
        ([{"cfg.seed": "x"}], TypeError, "int expected"),
        ([{"cfg.aux.tag": object()}], ValueError, "Work unit 1"),
    ],
)
def test_sweep_items_that_do_not_fit_stop_the_launch(
    config, registry, items, error, message
):
    xp = kd_experiment(config(), sweep_info=kxm.SimpleSweep(items))
    with pytest.raises(error, match=message):
        xp.launch()
    assert not registry.exists()
    assert not (registry.parent.parent / "runs").exists()


def test_new_arguments_that_a_call_takes_can_be_swept(config):
    xp = kd_experiment(
        config(), sweep_info=kxm.SimpleSweep([{"cfg.optimizer.b1": 0.8}])
    )
    assert "--cfg.optimizer.b1=0.8" in cfg_flags(xp.work_units()[0])


def test_a_flag_beats_a_sweep_and_equal_work_units_are_launched_once(config, caplog):
    items = [{"cfg.seed": s, "cfg.aux.lr": lr} for s in (0, 1) for lr in (0.1, 0.2)]
    xp = kd_experiment(config(), {"seed": 9}, sweep_info=kxm.SimpleSweep(items))
    with caplog.at_level(logging.WARNING):
        units = xp.work_units()
    assert "--cfg.seed is given as a flag" in caplog.text
    assert [unit.ui for unit in units] == [{"cfg.aux.lr": 0.1}, {"cfg.aux.lr": 0.2}]
    assert all("--cfg.seed=9" in cfg_flags(unit) for unit in units)


def test_a_flag_inside_a_swept_part_keeps_the_users_value(config):
    node = konfig.ConfigDict({"__qualname__": "flax.linen:Dense", "features": 3})
    xp = kd_experiment(
        config(),
        {"model.use_bias": False},
        sweep_info=kxm.SimpleSweep([{"cfg.model": node}]),
    )
    flags = cfg_flags(xp.work_units()[0])
    assert flags.index("--cfg.model.use_bias=false") > flags.index(
        next(f for f in flags if f.startswith("--cfg.model="))
    )


def test_a_sweep_inside_a_part_that_a_flag_replaces_comes_after_it(config):
    xp = kd_experiment(
        config(),
        {"model": "py::flax.linen:Dense(features=1, use_bias=False)"},
        sweep_info=kxm.SimpleSweep([{"cfg.model.features": 3}]),
    )
    flags = cfg_flags(xp.work_units()[0])
    assert flags[1].startswith("--cfg.model=py::")
    assert flags[2] == "--cfg.model.features=3"


def test_resources_can_be_swept(config):
    items = [{"cfg.xm_job.platform": "gpu=2"}, {"cfg.xm_job.platform": "cpu"}]
    path = config("cfg.xm_job = kxm.Job(platform='cpu')")
    units = kd_experiment(path, sweep_info=kxm.SimpleSweep(items)).work_units()
    assert [unit.jobs["train"].platform for unit in units] == ["gpu=2", "cpu"]


def test_a_simple_sweep_runs_unless_it_is_switched_off(config):
    sweep = kxm.SimpleSweep([{"cfg.seed": s} for s in range(3)])
    xp = kd_experiment(config(), sweep_info=sweep)
    assert len(xp.work_units()) == 3
    assert len(xp.replace(sweep=False).work_units()) == 1


def test_sweeps_of_the_config_run_only_when_asked_for(config):
    path = config(
        sweeps="\ndef sweep():\n    yield {'seed': 1}\n    yield {'seed': 2}\n"
    )
    xp = kd_experiment(path, sweep_info=kxm.KauldronSweep())
    assert len(xp.work_units()) == 1
    assert len(xp.replace(sweep=True).work_units()) == 2
    assert xp.replace(sweep=True).all_tags == ["sweep"]


def test_bad_experiments_say_what_is_missing(config, python_job):
    with pytest.raises(ValueError, match="has no jobs"):
        kxm.Experiment().launch()
    with pytest.raises(ValueError, match="comes after 'b'"):
        kxm.Experiment(jobs={"a": python_job("", after={"b": "started"})}).launch()
    loop = {
        "a": python_job("", after={"b": "started"}),
        "b": python_job("", after={"a": "succeeded"}),
    }
    with pytest.raises(ValueError, match="a, b wait for each other"):
        kxm.Experiment(jobs=loop).launch()
    with pytest.raises(ValueError, match="no config"):
        kxm.Experiment(
            jobs={"a": python_job("", args={"c": kxm.CFG_FLAG_VALUES})}
        ).launch()
    many = kxm.SimpleSweep([{"a": i} for i in range(5)])
    with pytest.raises(ValueError, match="has 5 work units"):
        kxm.Experiment(
            jobs={"a": python_job("")}, sweep_info=many, max_work_units=4
        ).launch()
    with pytest.raises(ValueError, match="would share the folder"):
        kxm.Experiment(
            jobs={"a": python_job("")},
            sweep_info=many,
            subdir_format=kxm.SubdirFormat(wu_dirname="same"),
        ).launch()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        kxm.Experiment(jobs={"a": python_job("", files={"x": "nowhere"})}).launch()
    with pytest.raises(ValueError, match="one engine"):
        kxm.Experiment(
            jobs={"a": python_job(""), "b": python_job("", executor="dry")}
        ).launch()
    with pytest.raises(LookupError, match="no experiment 77"):
        kxm.Experiment(jobs={"a": python_job("")}, xid=77).launch()
    with pytest.raises(ValueError, match=r"no engine 'locl'.*Did you mean 'local'"):
        kxm.Experiment(jobs={"a": python_job("")}, executor="locl").launch()
    assert records.known_xids() == []


def test_a_swept_value_without_a_text_is_refused_by_its_name(python_job):
    sweep = kxm.SimpleSweep([{"x": 1}, {"x": {1, 2}}])
    xp = kxm.Experiment(jobs={"main": python_job("")}, sweep_info=sweep)
    with pytest.raises(TypeError, match=r"^Work unit 2 .*argument 'x': a .*set"):
        xp.work_units()


def test_records_of_a_launch(python_job, tmp_path):
    job = python_job(ECHO, env_vars={"MY_TOKEN": "hidden", "N": 3})
    handle = kxm.Experiment(
        name="mine",
        jobs={"main": job},
        tags="a, b",
        note="why",
        sweep_info=kxm.SimpleSweep([{"x": "1"}, {"x": [1, 2]}]),
        executor=kxm.Local(max_parallel=2, stream=False),
    ).launch()
    assert handle.xid == 1
    assert handle.xp_dir == tmp_path / "runs" / "1"
    assert (handle.name, handle.tags, handle.note) == (
        "mine",
        ["a", "b", "sweep"],
        "why",
    )
    private = handle.xp_dir / ".kxm"
    record = text(private / "experiment.json")
    assert "hidden" not in record + text(private / "experiment.txt")
    assert '"***"' in record
    assert json.loads(record)["executor"]["type"] == "Local"
    unit = handle.work_units[1]
    secret = unit.folder / ".kxm" / "work_unit.json"
    assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600
    assert unit.sweep == {"x": [1, 2]}
    events = [e["event"] for e in records.read_events(handle.xp_dir) if e["wid"] == 2]
    assert events == ["created", "waiting", "started", "succeeded"]
    argv, env = json.loads(text(unit.log_path()).splitlines()[-1])
    assert argv == ["--x=[1, 2]"]
    assert (env["MY_TOKEN"], env["N"], env["KXM_WID"]) == ("hidden", "3", "2")
    assert env["KXM_WU_DIR"] == unit.workdir
    assert env["KXM_NUM_WORK_UNITS"] == "2"


def test_an_experiment_is_found_again_by_id_and_folder(python_job):
    launched = kxm.Experiment(jobs={"main": python_job("")}).launch()
    code = (
        "from kauldron import kxm; h = kxm.get_experiment(1); "
        "print(h.name, h.status(), h.work_units[0].jobs['main']['returncode'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.split(" ", 1)[1] == "{'succeeded': 1} 0\n"
    assert kxm.get_experiment(launched.work_units[0].folder).xid == 1
    assert [handle.xid for handle in kxm.list_experiments()] == [1]
    with pytest.raises(LookupError, match=r"no experiment 5 in .*Known: 1"):
        kxm.get_experiment(5)


def test_others_can_look_at_an_experiment(python_job, monkeypatch):
    handle = kxm.Experiment(
        jobs={"main": python_job("print('seen')")},
        sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
        executor=kxm.Local(stream=False),
    ).launch()

    def refuse(folder):
        raise PermissionError(f"{folder} belongs to someone else")

    monkeypatch.setattr(records, "read_unit", refuse)
    found = kxm.get_experiment(1)
    assert found.status() == {"succeeded": 2}
    assert [row[-1] for row in found.rows()] == ["a=1", "a=2"]
    assert "seen" in text(found.work_units[0].log_path())
    assert found.work_units[1].workdir == str(handle.xp_dir / "2")


def test_a_damaged_record_is_told(python_job, capfd):
    from kauldron.cli.main import main

    kxm.Experiment(jobs={"main": python_job("")}).launch()
    record = kxm.get_experiment(1).xp_dir / ".kxm" / "experiment.json"
    record.write_text('{"xid": 1')
    assert main(["xp", "status", "1"]) == 2
    assert "experiment.json" in capfd.readouterr().err
    assert main(["xp", "list"]) == 0


def test_work_units_can_be_added_to_an_experiment(python_job):
    xp = kxm.Experiment(jobs={"main": python_job("")}, executor=kxm.Local(stream=False))
    xp.launch()
    more = xp.replace(xid=1, sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}])).launch()
    assert more.wids == [1, 2, 3]
    assert more.status() == {"succeeded": 3}


def test_files_are_copied_when_the_experiment_is_launched(python_job, tmp_path):
    (tmp_path / "data.txt").write_text("before")
    code = "import sys; p, s = sys.argv[1][4:].split(':'); print(open(p).read() + s)"
    job = python_job(
        code, files={"d": "data.txt"}, args={"f": kxm.file_path("d") + ":end"}
    )
    xp = kxm.Experiment(jobs={"main": job}, executor=kxm.Local(stream=False))
    handle = xp.launch()
    (tmp_path / "data.txt").write_text("after")
    unit = handle.work_units[0]
    Runner(unit.folder, "main")  # the record is enough to run it again
    records.write_status(unit.folder, "main", state="pending")
    handle.resume()
    assert text(unit.log_path()).count("beforeend") == 2


def test_a_dry_run_prints_commands_that_run_and_writes_nothing(
    python_job, capfd, registry, tmp_path
):
    code = "import os, sys; print(sys.argv[1:], os.environ['A'])"
    xp = kxm.Experiment(
        jobs={"main": python_job(code, env_vars={"A": "b c"})},
        sweep_info=kxm.SimpleSweep([{"x": "it's"}, {"x": 2}]),
        executor="dry",
    )
    handle = xp.launch()
    out = capfd.readouterr().out
    assert handle.work_units == []
    assert "2 work units" in out
    assert "<xid>" in out
    command = next(line for line in out.splitlines() if line.startswith("cd "))
    ran = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True
    )
    assert ran.stdout == '["--x=it\'s"] b c\n'
    assert not registry.exists()
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_checks_everything(config):
    xp = kd_experiment(
        config(), executor="dry", sweep_info=kxm.SimpleSweep([{"cfg.sed": 1}])
    )
    with pytest.raises(KeyError, match="Did you mean 'seed'"):
        xp.launch()


def test_two_launchers_get_different_ids(registry):
    code = "from kauldron.kxm import records; print(records.new_xid())"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    ids = [process.communicate()[0].strip() for process in started]
    assert sorted(ids) == ["1", "2", "3", "4"]


def test_orchestrators_may_leave_out_jobs(python_job):
    import dataclasses

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class FirstOnly(kxm.SweepOrchestrator):
        def update_jobs(self, jobs, sweep_item):
            keep = {
                k: v for k, v in jobs.items() if k == "a" or sweep_item.job_kwargs["s"]
            }
            return keep

    xp = kxm.Experiment(
        jobs={"a": python_job(""), "b": python_job("")},
        sweep_info=kxm.SimpleSweep([{"s": 0}, {"s": 1}]),
        orchestrator=FirstOnly(),
    )
    assert [list(unit.jobs) for unit in xp.work_units()] == [["a"], ["a", "b"]]


def test_folders_follow_the_format(config):
    xp = kd_experiment(
        config(),
        root_dir="/r/{name}",
        subdir_format=kxm.SubdirFormat(
            wu_dirname="{wid}{separator_if_sweep}{sweep_kwargs}"
        ),
        sweep_info=kxm.SimpleSweep([{"cfg.seed": s} for s in range(10)]),
    )
    unit = xp.work_units(xid=5)[0]
    name = f"{pathlib.Path(config()).parent.name}.config"
    assert unit.workdir == f"/r/{name}/5/01-cfg.seed=0"


@pytest.mark.parametrize(
    "folders",
    [
        {"root_dir": "/r/{wid}"},
        {"subdir_format": kxm.SubdirFormat(xp_dirname="{sweep_kwargs}")},
    ],
)
def test_work_units_cannot_have_different_folders_of_the_experiment(
    python_job, folders
):
    items = kxm.SimpleSweep([{"a": 1}, {"a": 2}])
    xp = kxm.Experiment(jobs={"main": python_job("")}, sweep_info=items, **folders)
    with pytest.raises(ValueError, match=r"^\{\w+\} in '.*': `\w+` not set yet"):
        xp.work_units()


def test_engine_is_another_word_for_executor(python_job):
    xp = kxm.Experiment(jobs={"main": python_job("")}, engine=kxm.DryRun())
    assert xp.common_executor == kxm.DryRun()


def test_job_parameters_can_be_given_to_a_config_without_any(config):
    overrides = {"xm_job.platform": "cpu", "xm_job.env_vars": {"A": 1}}
    [unit] = kd_experiment(config(), overrides).work_units()
    assert unit.jobs["train"].platform == "cpu"
    assert unit.jobs["train"].env["A"] == "1"
    assert not any("xm_job" in flag for flag in cfg_flags(unit))


def test_nested_job_parameters_can_be_given_to_any_config(config):
    body = """
cfg.xm_job = kxm.Job(platform='cpu')
cfg.evals = {'a': kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint())}
"""
    overrides = {
        "xm_job.env_vars.A": "b",
        "xm_job.requirements.ram": "1GB",
        "evals.a.run.env_vars.C": "d",
    }
    xp = kd_experiment(
        config(body),
        overrides,
        sweep_info=kxm.SimpleSweep([{"cfg.xm_job.debug.dump_hlo": True}]),
    )
    [unit] = xp.work_units()
    train = unit.jobs["train"]
    assert (train.env["A"], train.requirements.ram) == ("b", 10**9)
    assert "xla_dump" in train.env["XLA_FLAGS"]
    assert unit.jobs["a"].env["C"] == "d"
    assert not any("xm_job" in f or "env_vars" in f for f in cfg_flags(unit, "a"))


def test_values_that_no_command_line_holds_go_through_a_file(python_job, config):
    code = "import sys; print(len(sys.argv), len(open(sys.argv[1][11:]).read()))"
    long = "x" * 200_000
    handle = kxm.Experiment(
        jobs={"main": python_job(code, args={"a": long, "b": 1})},
        executor=kxm.Local(stream=False),
    ).launch()
    log = text(handle.work_units[0].log_path())
    assert log.endswith(f"2 {len(long) + len('--a=') + len('--b=1') + 2}\n")
    provider = kxm.ConfigProvider.from_path(config(), overrides={"aux.tag": long})
    assert provider.config.aux.tag == long


def test_the_command_reads_flags_from_a_file(tmp_path, config, capfd):
    from kauldron.cli.main import main

    long = "x" * 200_000
    (tmp_path / "flags").write_text(f"--cfg={config()}\n--cfg.aux.tag={long}\n")
    assert main(["config", "show", f"--flagfile={tmp_path / 'flags'}"]) == 0
    assert long in capfd.readouterr().out


def test_debugging_needs_a_terminal(python_job):
    job = python_job("", debug=kxm.Debug(catch_post_mortem=True))
    with pytest.raises(ValueError, match="needs a terminal"):
        kxm.Experiment(jobs={"main": job}).launch()


def test_a_port_for_the_profiler_is_found_and_noted(python_job):
    job = python_job(
        "import os; print(os.environ['KXM_PROFILER_PORT'])",
        debug=kxm.Debug(xprof_port=True),
    )
    handle = kxm.Experiment(
        jobs={"main": job}, executor=kxm.Local(stream=False)
    ).launch()
    unit = handle.work_units[0]
    port = text(unit.log_path()).splitlines()[-1]
    assert int(port) > 0
    assert unit.jobs["main"]["profiler_port"] == port


def test_requirements_without_effect_are_told_once(python_job, caplog):
    job = python_job("", requirements=kxm.JobRequirements(tmp_ram_fs=1))
    with caplog.at_level(logging.WARNING):
        kxm.Experiment(
            jobs={"main": job},
            sweep_info=kxm.SimpleSweep([{"a": 1}, {"a": 2}]),
            executor=kxm.Local(stream=False),
        ).launch()
    assert caplog.text.count("tmp_ram_fs") == 1


def test_a_missing_extra_is_named(python_job, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    search = kxm.Search(
        {"a": kxm.Range(0, 1)}, method="tpe", metric="loss", num_trials=2
    )
    xp = kxm.Experiment(jobs={"main": python_job("")}, sweep_info=search)
    with pytest.raises(ImportError, match=r"pip install 'kauldron\[optuna\]'"):
        xp.launch()
    assert records.known_xids() == []


#
# Configs
#


def test_a_provider_from_a_flag(config):
    from absl import flags

    values = flags.FlagValues()
    holder = konfig.DEFINE_config_file("cfg", flag_values=values)
    values(["program", f"--cfg={config()}", "--cfg.seed=5", "--cfg.aux.nothing=None"])
    for flag in (values["cfg"], holder):
        provider = kxm.ConfigProvider.from_flag(flag)
        assert provider.config.seed == 5
        assert provider.overrides == {"seed": 5, "aux.nothing": None}
        assert provider.config_path == config()


def test_a_provider_from_a_module():
    provider = kxm.ConfigProvider.from_module(
        "kauldron.xm.configs.kd_base", overrides={"root_dir": "/r"}
    )
    assert provider.config.root_dir == "/r"
    assert provider.config_path.endswith("kd_base.py")
    with pytest.raises(TypeError, match="config module"):
        kxm.ConfigProvider.from_module(3)


def test_flags_of_a_config_are_added_once_and_never_twice(config):
    provider = kxm.ConfigProvider.from_path(f"{config()}", overrides={"seed": 2})
    job = kxm.Job(args={"config": kxm.CFG_FLAG_VALUES, "x": 1})
    args = provider.maybe_add_cfg_flags(job).args
    assert args == {"config": config(), "config.seed": 2, "x": 1}
    twice = kxm.Job(args={"a": kxm.CFG_FLAG_VALUES, "b": kxm.CFG_FLAG_VALUES})
    with pytest.raises(ValueError, match="only one argument"):
        provider.maybe_add_cfg_flags(twice)
    other = job.replace(args={**job.args, "config.seed": 3})
    with pytest.raises(ValueError, match="contradicts the argument"):
        provider.maybe_add_cfg_flags(other)


#
# Copies of the code
#


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository with a program that imports a module beside it."""
    top = tmp_path / "repo"
    top.mkdir()
    (top / "helper.py").write_text("VALUE = 'before'\n")
    (top / "program.py").write_text("import helper; print(helper.VALUE)\n")
    (top / "large.bin").write_text("ignored")
    (top / ".gitignore").write_text("large.bin\n")
    git = ["git", "-C", str(top), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    (top / "new.py").write_text("")
    monkeypatch.chdir(top)
    return top


def test_a_snapshot_runs_the_code_of_the_launch(repository):
    xp = kxm.Experiment(
        jobs={"main": kxm.Job(target="program.py")},
        snapshot=True,
        root_dir=str(repository / "runs"),
        executor=kxm.Local(stream=False),
    )
    handle = xp.launch()
    (repository / "helper.py").write_text("VALUE = 'after'\n")
    copy = handle.xp_dir / ".kxm" / "code"
    names = {p.name for p in copy.iterdir()} - {"__pycache__"}  # of the first run
    assert names == {"helper.py", "program.py", "new.py", ".gitignore"}
    records.write_status(handle.work_units[0].folder, "main", state="pending")
    handle.resume()
    assert text(handle.work_units[0].log_path()).count("before\n") == 2
    assert not any(p.name == "runs" for p in xp.launch().xp_dir.glob(".kxm/code/*"))


def test_a_snapshot_is_of_the_repository_with_the_config(
    repository, tmp_path, monkeypatch
):
    path = repository / "config.py"
    path.write_text(
        "from kauldron import konfig\n"
        "def get_config(): return konfig.ConfigDict({'seed': 0})\n"
    )
    monkeypatch.chdir(tmp_path)
    module = config_files.load_module(str(path), "config_in_repository")
    for provider in (
        kxm.ConfigProvider.from_module(module),
        kxm.ConfigProvider.from_path(str(path)),
    ):
        xp = kxm.Experiment(
            jobs={"main": kxm.Job(target=str(repository / "program.py"))},
            cfg_provider=provider,
            snapshot=True,
        )
        [unit] = xp.work_units()
        assert unit.jobs["main"].argv[1].endswith(".kxm/code/program.py")


def test_a_snapshot_needs_a_repository(python_job, tmp_path):
    with pytest.raises(ValueError, match="is not in one"):
        kxm.Experiment(jobs={"main": python_job("")}, snapshot=True).launch()


def test_a_launch_that_fails_removes_only_what_it_made(python_job, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    keep = tmp_path / "runs" / "mine" / "thesis.txt"
    keep.write_text("years of work")
    (tmp_path / "runs" / "mine" / "1").write_text("in the way")
    xp = kxm.Experiment(
        jobs={"main": python_job("")}, subdir_format=kxm.SubdirFormat(xp_dirname="mine")
    )
    with pytest.raises(OSError, match="mine"):
        xp.launch()
    assert keep.read_text() == "years of work"
    assert records.known_xids() == []
