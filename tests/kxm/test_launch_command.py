"""`kauldron launch`, `kauldron sweep` and `kauldron xp` on the command line."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from kauldron import kxm
from kauldron.cli.main import main
from kauldron.kxm import records
from tests.kxm.waiting import poll, text


@pytest.fixture
def kauldron(capfd):
    """Run a command; return exit code, stdout and stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def fit(tmp_path):
    """A program that prints its flags; told to, it fails or reports a loss."""
    path = tmp_path / "fit.py"
    path.write_text(
        "import sys\nprint(sys.argv[1:])\n"
        "flags = dict(a[2:].split('=') for a in sys.argv[1:])\n"
        "if 'fail' in flags: raise ValueError('told to fail')\n"
        "if 'report' in flags:\n"
        "    from kauldron import kxm\n"
        "    kxm.report(loss=float(flags['x']))\n"
    )
    return path


def single(fit, *more):
    return ["--xp=single", f"--xp.target={fit}", *more]


def test_any_program_is_launched_with_flags(kauldron, fit):
    code, out, _ = kauldron("launch", *single(fit, "--xp.args.x=3", "--xp.name=mine"))
    assert code == 0
    assert "['--x=3']" in out
    assert kxm.get_experiment(1).name == "mine"


def test_a_launch_that_returns_at_once_tells_where_to_look(kauldron, fit):
    flags = ["--xp.executor=k8s", "--xp.executor.image=team/train:3"]
    _, dry, _ = kauldron("launch", *single(fit, *flags, "--dry"))
    code, out, _ = kauldron("launch", *single(fit, *flags))
    assert code == 0
    assert "kauldron xp status" not in dry
    *_, where, how = out.splitlines()
    assert where == f"Experiment 1 in {kxm.get_experiment(1).xp_dir}"
    assert how == "How it goes: kauldron xp status 1"


def test_a_failure_is_the_exit_code(kauldron, fit):
    code, out, _ = kauldron("launch", *single(fit, "--xp.args.fail=1"))
    assert code == 1
    assert "told to fail" in out


def test_a_launcher_whose_unit_is_stopped_exits_with_143_until_it_is_resumed(
    kauldron, tmp_path
):
    program = tmp_path / "wait.py"
    program.write_text(
        "import pathlib, sys, time\npathlib.Path('up').touch()\n"
        "while not pathlib.Path('go on').exists(): time.sleep(0.02)\n"
    )
    command = [sys.executable, "-m", "kauldron.main", "launch", *single(program)]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    poll((tmp_path / "up").exists)
    assert "Told 1 work unit " in kauldron("xp", "stop", 1)[1]
    assert launcher.wait(timeout=60) == 143
    assert kxm.get_experiment(1).work_units[0].state == "stopped"
    (tmp_path / "go on").touch()
    assert kauldron("xp", "resume", 1)[0] == 0


def test_a_sweep_goes_on_when_nobody_reads_any_more(fit):
    flags = single(fit, "--sweep.x=1,2", "--xp.executor.max_parallel=1")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", "sweep", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout.readline() == "2 work units:\n"
    launcher.stdout.close()  # as `head -1` does
    _, err = launcher.communicate(timeout=60)
    assert (launcher.returncode, err) == (0, "")
    assert kxm.get_experiment(1).status() == {"succeeded": 2}


def test_sweeps_show_the_units_and_their_count_before_anything_starts(kauldron, fit):
    code, out, _ = kauldron("sweep", *single(fit, "--sweep.x=1,2", "--sweep.y=0:2"))
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "4 work units:"
    assert lines[1].split()[:2] == ["1", "x=1,y=0"]
    first_start = next(i for i, line in enumerate(lines) if "started" in line)
    assert first_start > 4
    assert [unit.sweep for unit in kxm.get_experiment(1).work_units][1] == {
        "x": 1,
        "y": 1,
    }


def test_a_config_is_swept_by_paths_with_or_without_cfg(kauldron, config):
    code, out, _ = kauldron(
        "sweep",
        f"--cfg={config()}",
        "--sweep.cfg.seed=0:3",
        "--sweep.aux.lr=0.1",
        "--dry",
    )
    assert code == 0
    assert "3 work units:" in out
    assert "--cfg.seed=2 --cfg.aux.lr=0.1" in out
    assert records.known_xids() == []


def test_sweep_functions_are_chosen_with_flags(kauldron, config):
    path = config(sweeps="\ndef sweep_lr():\n    yield {'aux.lr': 1.0}\n"
                  "    yield {'aux.lr': 2.0}\n")  # fmt: skip
    command = ["launch", f"--cfg={path}", "--dry"]
    assert "1 work unit:" in kauldron(*command)[1]
    assert "2 work units:" in kauldron(*command, "--xp.sweep=lr")[1]
    assert "1 work unit:" in kauldron(*command, "--noxp.sweep")[1]
    code, _, err = kauldron(*command, "--xp.sweep")
    assert code == 2
    assert "sweep_lr" in err


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--sweep.sed=0:4"], "Did you mean 'seed'"),
        (["--sweep.seed=a"], "int expected"),
        (["--sweep.seed=0:0"], "the range is empty"),
        (["--sweep.seed=1", "--sweep.cfg.seed=2"], "given twice"),
        ([], "What should vary?"),
        (["--sweep=x"], "What should vary?"),
        (["--sweep.seed=1", "--xp.executor=loca"], "Did you mean 'local'"),
        (["--sweep.seed=1", "--xp.executor.max_paralel=1"], "Did you mean 'max_parallel'"),
        (["--sweep.seed=1", "--xp.platfrom=cpu"], "Did you mean 'platform'"),
        (["--sweep.seed=1", "--xp.jobs.trian.platform=cpu"], "Did you mean 'train'"),
        (["--sweep.seed=1", "--xp.jobs.train.platfrom=cpu"], "Did you mean 'platform'"),
        (["--sweep.seed=1", "--xp.platform=gpu=900"], "900 GPUs"),
        (["--sweep.seed=1", "--xp=sngle"], "Did you mean 'single'"),
        (["--sweep.seed=1", "--cfg.sed=3"], "Did you mean 'seed'"),
        (["--sweep.seed=1", "--patch"], "--patch is for trying"),
        (["--sweep.seed=1", "--cfg.workdir=here"], "--xp.root_dir=... says where"),
        (["--sweep.seed=1", "--nowait"], "end with the command that starts them"),
        (["--sweep.workdir=a,b"], "--xp.root_dir=... says where"),
        (["--sweep.seed=1", "--xp.help"], "max_work_units: int = 1000"),
        (["--sweep.seed=1", "--swep.seed=2"], "not understood"),
        (["--sweep.seed=1", "--xp.jobs=nope"], "xp.jobs: jobs: expected Mapping"),
        (["--sweep.seed=1", "--xp.tags=1"], "got int 1. (set by --xp.tags=1)"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_starts(
    kauldron, config, flags, message, tmp_path
):
    code, _, err = kauldron("sweep", f"--cfg={config()}", *flags)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert records.known_xids() == []
    assert not (tmp_path / "runs").exists()


def test_a_config_is_missing(kauldron):
    for flags, message in [([], "--cfg=path"), (["--cfg.seed=1"], "--cfg=config.py")]:
        code, _, err = kauldron("launch", *flags)
        assert code == 2
        assert message in err


def test_a_flag_settles_what_places_disagree_about(kauldron, config):
    path = config("cfg.xm_job = kxm.Job(platform='gpu=1', env_vars={'A': 1})")
    command = ["launch", f"--cfg={path}", "--dry"]
    code, out, err = kauldron(*command, "--xp.platform=cpu", "--xp.jobs.train.args.z=1")
    assert code == 0
    assert "JAX_PLATFORMS=cpu" in out
    assert "--z=1" in out
    code, out, err = kauldron(
        *command, "--xp.platform=cpu", "--cfg.xm_job.platform=gpu=2"
    )
    assert "JAX_PLATFORMS" not in out


def test_experiments_are_listed_shown_and_noted(kauldron, fit):
    assert "No experiments" in kauldron("xp", "list")[1]
    flags = ["--sweep.x=5,1,3", "--xp.tags=a,b", "--xp.args.report=loss"]
    kauldron("sweep", *single(fit, *flags))
    out = kauldron("xp", "list")[1]
    assert out.split("\t")[:3] == ["1", "fit", "3 succeeded"]
    assert json.loads(kauldron("xp", "list", "--json")[1])[0]["tags"] == [
        "a",
        "b",
        "sweep",
    ]
    rows = [line.split("\t") for line in kauldron("xp", "status", 1)[1].splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [row[-1] for row in rows] == ["x=5", "x=1", "x=3"]
    [only] = json.loads(kauldron("xp", "status", 1, 2, "--json")[1])
    assert (only["state"], only["scalars"]) == ("succeeded", {"loss": 1.0})
    best = kauldron("xp", "best", 1, "--metric=loss")[1].splitlines()
    assert [line.split("\t")[0] for line in best] == ["2", "3", "1"]
    assert kauldron("xp", "best", 1, "--metric=lss")[0] == 2
    kauldron("xp", "note", 1, "worked", "well")
    assert json.loads(kauldron("xp", "show", 1)[1])["note"] == "worked well"


def test_best_takes_names_as_status_shows_them_and_judges_by_them(kauldron, fit):
    kauldron("sweep", *single(fit, "--sweep.x=1,2,3"))
    for unit, value in zip(kxm.get_experiment(1).work_units, ("NaN", "0.5", "0.7")):
        folder = pathlib.Path(unit.workdir, "test")
        folder.mkdir()
        values = f'{{"metrics/accuracy": {value}, "losses/total": {value}}}'
        line = f'{{"step": 1, "time": 0.0, "values": {values}}}\n'
        (folder / "scalars.jsonl").write_text(line)
    assert "test/accuracy=0.5" in kauldron("xp", "status", 1)[1]
    for metric, order in {
        "test/accuracy": ["3", "2", "1"],
        "test/metrics/accuracy": ["3", "2", "1"],
        "test/loss": ["2", "3", "1"],
    }.items():
        best = kauldron("xp", "best", 1, f"--metric={metric}")[1].splitlines()
        assert [line.split("\t")[0] for line in best] == order


def test_status_in_a_terminal_keeps_values_on_one_line(kauldron, fit, monkeypatch):
    values = {"losses/total": 0.123, "metrics/accuracy": 0.123, "metrics/recall": 0.123}
    kauldron("sweep", *single(fit, "--sweep.x=1,2"))
    for unit in kxm.get_experiment(1).work_units:
        folder = pathlib.Path(unit.workdir, "test")
        folder.mkdir()
        line = {"step": 1, "time": 0.0, "values": values}
        (folder / "scalars.jsonl").write_text(json.dumps(line) + "\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("rich._console", None)
    monkeypatch.setenv("COLUMNS", "60")
    assert len(kauldron("xp", "status", 1)[1].splitlines()) == 3


def test_logs(kauldron, fit):
    kauldron("sweep", *single(fit, "--sweep.x=5,1"))
    code, out, _ = kauldron("xp", "logs", 1, 2)
    assert code == 0
    assert out.splitlines()[0].startswith("--- attempt 1 at ")
    assert kauldron("xp", "logs", 1, 2, "main", "-n", 1)[1] == "['--x=1']\n"
    assert "['--x=5']" in kauldron("xp", "logs", 1, "-f")[1]
    code, _, err = kauldron("xp", "logs", 1, 2, "train")
    assert (code, "It has main" in err) == (2, True)


def test_failed_units_are_resumed(kauldron, tmp_path):
    script = tmp_path / "twice.py"
    script.write_text("import os; raise SystemExit(os.environ['KXM_ATTEMPT'] == '1')")
    assert kauldron("sweep", *single(script, "--sweep.x=1,2"))[0] == 1
    assert kauldron("xp", "resume", 1, 2, "--failed-only")[0] == 1  # the first is left
    assert kxm.get_experiment(1).status() == {"failed": 1, "succeeded": 1}
    assert kauldron("xp", "resume", 1)[0] == 0
    assert kauldron("xp", "resume", 1)[1] == "There is nothing to resume.\n"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The folder of a registry with one experiment, which has ended."""
    folder = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAULDRON_HOME", str(folder / "home"))
        patch.setenv("KAULDRON_ROOT_DIR", str(folder / "runs"))
        job = kxm.Job(target=[sys.executable, "-c", ""])
        assert kxm.Experiment(jobs={"main": job}).launch().xid == 1
    return str(folder / "home")


@pytest.mark.parametrize(
    "command, message",
    [
        (["status", 9], "There is no experiment 9"),
        (["stop", 9], "There is no experiment 9"),
        (["resume", "nowhere"], "not the folder of an experiment"),
        (["status", 1, "7"], "has no work unit 7"),
        (["stop", 1, "x"], "write work units as"),
        (["resume", 1, "7"], "has no work unit 7"),
        (["best", 1], "Best by what?"),
        (["lst"], "xp list"),
    ],
)
def test_bad_questions_about_experiments(
    kauldron, known, monkeypatch, command, message
):
    monkeypatch.setenv("KAULDRON_HOME", known)
    code, _, err = kauldron("xp", *command)
    assert code == 2
    assert message in err


def test_stop_tells_units_that_have_not_ended(kauldron, fit):
    kauldron("sweep", *single(fit, "--sweep.x=1,2"))
    assert kauldron("xp", "stop", 1)[1] == "Told 0 work units to save and stop.\n"
    folder = kxm.get_experiment(1).work_units[0].folder
    records.write_status(folder, "main", state="pending", pid=None)
    assert "Told 1 work unit " in kauldron("xp", "stop", 1)[1]
    assert kxm.get_experiment(1).work_units[0].state == "stopped"


def test_the_older_name_of_the_package_is_the_same():
    from kauldron import xm

    assert xm.Experiment is kxm.Experiment
    assert "Search" in dir(xm)


def test_the_older_program_launches(fit, tmp_path):
    command = [sys.executable, "-m", "kauldron.xm.launch", "--", *single(fit, "--dry")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 work unit:" in done.stdout


def test_an_experiment_file_of_ones_own(kauldron, fit, tmp_path):
    (tmp_path / "my_xp.py").write_text(
        "from kauldron import konfig\n"
        "with konfig.imports():\n"
        "    from kauldron import kxm\n"
        "def get_config():\n"
        "    return kxm.Experiment(\n"
        "        jobs={'main': kxm.Job(target='fit.py', args={'x': 1})},\n"
        "        sweep_info=kxm.SimpleSweep([{'y': 1}, {'y': 2}]),\n"
        "        executor=kxm.Local(max_parallel=1),\n"
        "    )\n"
    )
    code, _, _ = kauldron("launch", "--xp=my_xp.py", "--xp.executor.stream=False")
    handle = kxm.get_experiment(1)
    assert code == 0
    assert handle.executor == kxm.Local(max_parallel=1, stream=False)
    assert "['--x=1', '--y=2']" in text(handle.work_units[1].log_path())
    assert pathlib.Path(handle.record["cwd"]) == tmp_path


def test_a_terminal_shows_a_table_of_the_units(fit):
    import os

    from tests.terminal_output import read_all

    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", "sweep", *single(fit, "--sweep.x=5,1")],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait() == 0
    assert "sweep" in shown
    assert re.search(r" 1 +succeeded .* x=5", shown)
    assert "2 succeeded" in shown
