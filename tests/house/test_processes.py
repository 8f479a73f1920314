"""Processes that tests have forked behave as those that they start."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import processes
from tests.kxm.waiting import poll

pytestmark = pytest.mark.usefixtures("fast_python")


def run(*words, **options):
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, **options
    )


@pytest.mark.parametrize(
    "code, expected",
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit('no')", 1),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_exit_codes(code, expected):
    assert run("-c", code).returncode == expected


def test_an_error_is_shown_as_the_interpreter_shows_it():
    assert run("-c", "1 / 0").stderr.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<string>", line 1, in <module>',
        "ZeroDivisionError: division by zero",
    ]


def test_words_folders_variables_and_input_are_those_of_the_caller(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, os, sys, beside\n"
        "atexit.register(print, 'at the end')\n"
        "print(__name__, sys.argv[1:], os.getcwd(), os.environ.get('ONLY'))\n"
        "print(beside.NAME, sys.stdin.read())\n"
    )
    done = run(script, "a", cwd="/", env={"ONLY": "this"}, input="said")
    lines = ["__main__ ['a'] / this", "beside said", "at the end"]
    assert done.stdout.splitlines() == lines, done.stderr


def test_settings_of_jax_are_those_of_the_environment():
    code = "import jax; print(jax.config.jax_enable_x64, jax.device_count())"
    flags = {"JAX_ENABLE_X64": "1", "XLA_FLAGS": _THREE_DEVICES}
    assert run("-c", code, env=os.environ | flags).stdout == "True 3\n"
    assert run("-c", code).stdout == "False 1\n"


_THREE_DEVICES = "--xla_force_host_platform_device_count=3"


def test_signals_are_passed_on(tmp_path):
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait() == 7


def test_one_that_is_killed_takes_the_program_along():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as process:
        pid = int(process.stdout.readline())
        process.kill()
    poll(lambda: not pathlib.Path(f"/proc/{pid}").exists())


def test_what_cannot_be_forked_is_started():
    code = "import sys; print('jax' in sys.modules, sys.flags.isolated)"
    assert run("-I", "-c", code).stdout == "False 1\n"
    reading, writing = os.pipe()
    code = f"import os, sys; os.write({writing}, b'here'); print('jax' in sys.modules)"
    assert run("-c", code, pass_fds=[writing]).stdout == "False\n"
    assert os.read(reading, 10) == b"here"
    os.close(reading)
    os.close(writing)


def test_a_function_runs_in_a_process_of_its_own():
    process = processes.Process(os._exit, 5)
    assert process.wait() == (5, "")
    assert process.pid != os.getpid()
