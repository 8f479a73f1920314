"""The command line itself: finding the command, help, exit codes, entry points."""

import dataclasses
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys

import pytest

from kauldron import kd
from kauldron.cli import COMMANDS
from kauldron.cli.main import TRAINER_FIELDS
from tests.terminal_output import read_all


def run_process(*arguments, module="kauldron.main", **kwargs):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,
    )


# ------------------------------------------------------------------------------------
# In this process
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_lists_every_command_and_exits_0(kauldron, flag):
    code, out, err = kauldron(flag)
    assert (code, err) == (0, "")
    for words, command in COMMANDS.items():
        assert " ".join(words) in out
        assert command.summary in out


def test_version_is_that_of_the_package(kauldron):
    import kauldron as package

    assert kauldron("--version") == (0, f"kauldron {package.__version__}\n", "")


def test_help_of_a_group_lists_its_commands(kauldron):
    code, out, _ = kauldron("config", "--help")
    assert code == 0
    assert "config paths" in out
    assert "data show" not in out


@pytest.mark.parametrize("name", ["show", "resolve", "check", "diff", "paths"])
def test_help_of_a_command_tells_its_options(kauldron, name):
    for arguments in (["config", name, "--help"], ["--help", "config", name]):
        code, out, _ = kauldron(*arguments)
        assert code == 0
        assert f"usage: kauldron config {name} --cfg=config.py" in out
        assert "--traceback" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["config", "show", "--cfg=good.py", "--json"],
        ["--cfg=good.py", "--json", "config", "show"],
        ["config", "--cfg", "good.py", "show", "--json"],
        ["--cfg", "good.py", "config", "show", "--json"],
    ],
)
def test_flags_may_stand_anywhere(kauldron, arguments):
    code, out, _ = kauldron(*arguments)
    assert code == 0
    assert out.startswith("{")


def test_traceback_is_shown_when_asked_for(kauldron):
    _, _, err = kauldron("config", "show", "--cfg=name_error.py", "--traceback")
    assert "Traceback" in err
    assert "error: get_config() of name_error.py failed" in err
    _, _, err = kauldron("config", "show", "--cfg=name_error.py")
    assert "Traceback" not in err


def test_output_is_plain_when_it_is_no_terminal(kauldron):
    for command in ("show", "paths", "check"):
        _, out, err = kauldron("config", command, "--cfg=good.py")
        assert "\x1b" not in out + err


# ------------------------------------------------------------------------------------
# In a process of its own
# ------------------------------------------------------------------------------------


def test_module_starts_and_prints_help():
    result = run_process("--help")
    assert result.returncode == 0
    assert "config show" in result.stdout
    assert result.stderr == ""


def test_older_module_of_the_command_line_runs_it():
    result = run_process("--help", module="kauldron.cli.main")
    assert result.returncode == 0
    assert "config show" in result.stdout


def test_help_imports_no_array_library():
    program = (
        "import sys; from kauldron.main import main; main(['--help']);"
        "print(sorted({'jax', 'numpy', 'flax', 'kauldron.konfig'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_fields_of_the_trainer_are_known_without_importing_it():
    fields = [field.name for field in dataclasses.fields(kd.train.Trainer)]
    assert sorted(TRAINER_FIELDS) == sorted(fields)


def test_nothing_heavy_is_imported_before_the_flags_are_read():
    program = (
        "import sys; from kauldron.cli import COMMANDS, main\n"
        "for words in COMMANDS:\n"
        "    assert main([*words, '--help']) == 0\n"
        "    assert main([*words, '--cfg=c.py', '--wrong']) == 2\n"
        "print(sorted({'jax', 'numpy', 'flax', 'orbax', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_command_runs_in_a_process(folder):
    result = run_process("config", "check", "--cfg=good.py", "--cfg.seed=3", cwd=folder)
    assert (result.returncode, result.stdout) == (0, "No problems found in good.py\n")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["config", "show", "--cfg=missing.py"], ["missing.py"]),
        (
            ["config", "show", "--cfg=good.py", "--cfg.nestd.n=1"],
            ["cfg.nestd.n", "nested"],
        ),
        (["config", "resolve", "--cfg=required.py"], ["cfg.a.n"]),
        (["config", "nothing"], ["no command 'config nothing'"]),
    ],
)
def test_bad_input_exits_2_without_a_traceback(folder, arguments, words):
    before = {
        file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()
    }
    result = run_process(*arguments, cwd=folder)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    after = {
        file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()
    }
    assert before == after


@pytest.mark.parametrize("command", ["show", "paths"])
def test_output_in_a_terminal_is_coloured_and_complete(folder, command):
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", "config", command, "--cfg=good.py"],
        cwd=folder,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    output = read_all(controller)
    assert process.wait(timeout=120) == 0
    assert "\x1b[" in output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert "fractions" in plain
    assert "\u2026" not in plain


@pytest.mark.parametrize("command", ["paths", "show"])
def test_reader_that_stops_early_is_no_error(folder, command):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", "config", command, "--cfg=good.py"],
        cwd=folder,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    _, errors = process.communicate(timeout=120)
    assert errors == ""
    assert process.returncode == 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_every_command_exits_0(kauldron, words):
    code, out, err = kauldron(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: kauldron {' '.join(words)} ")


def test_help_tells_which_configs_may_be_left_out(kauldron):
    config = "--cfg=config.py"
    for words, optional in (("train", False), ("eval", True), ("sweep", True)):
        _, out, _ = kauldron(words, "--help")
        usage, _, _ = out.partition("\n\n")
        assert (f"[{config}]" in usage) == optional and config in usage
    assert "--sweep.path=values ..." in usage
    _, out, _ = kauldron("test", "--help")
    assert out.startswith(f"usage: kauldron test WORKDIR [{config}] [--cfg.path=")


def test_help_of_run_lists_the_patches(kauldron):
    _, out, _ = kauldron("run", "--help")
    assert "--patch.skip_checkpointer=True" in out
    assert "--patch.batch_size=devices" in out


#
# Ctrl-C while modules are imported and the config is loaded
#


SWALLOWING = """
import time
print("loading", flush=True)
try:
    time.sleep(60)
except BaseException as error:
    {reaction}
print("goes on", flush=True)
def get_config():
    return {{}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("reaction", ["pass", "raise ImportError('broken') from error"])
@pytest.mark.parametrize("command", ["train", "check"])
def test_ctrl_c_while_a_config_is_loaded_ends_the_command(
    tmp_path, command, reaction, fast_python
):
    """Whatever the modules that are being imported make of it."""
    file = tmp_path / "config.py"
    file.write_text(SWALLOWING.format(reaction=reaction))
    process = subprocess.Popen(
        [sys.executable, "-m", "kauldron.main", command, f"--cfg={file}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    assert "goes on" not in stdout and stderr == ""


def test_warnings_are_short(tmp_path):
    config = tmp_path / "warns.py"
    config.write_text(
        "import warnings\n"
        "from kauldron import konfig\n"
        "def get_config():\n"
        "    warnings.warn('mind the gap')\n"
        "    return konfig.ConfigDict({'a': 1})\n"
    )
    result = run_process("config", "show", f"--cfg={config}")
    assert result.stderr == "warning: mind the gap (UserWarning, warns.py:4)\n"


def test_tilde_after_an_equals_sign_is_the_home_folder(kauldron, monkeypatch):
    monkeypatch.setenv("HOME", os.getcwd())
    code, out, _ = kauldron("config", "show", "--cfg=~/good.py")
    assert code == 0 and "'seed': 42" in out
    _, _, err = kauldron("eval", "--workdir=~/nope")
    assert f"{os.getcwd()}/nope is not the folder of a run" in err
    pathlib.Path("run").mkdir()
    pathlib.Path("run/run_info.json").write_text("{}")
    flags = ("--cfg=good.py", "--cfg.workdir=~/run", "--patch")
    _, _, err = kauldron("train", *flags)
    assert "There is a run in ~/run" in err
