"""Failing with and without a debugger."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest

from kauldron.utils import error_utils

MAIN = textwrap.dedent(
    """
    from absl import app
    from kauldron.utils import error_utils

    @error_utils.catch_post_mortem
    def main(argv):
        answer = 42
        raise {error}

    app.run(main)
    """
)


def _script(tmp_path, error="ValueError('failed')"):
    path = tmp_path / "main.py"
    path.write_text(MAIN.format(error=error))
    return path


@pytest.mark.parametrize("flags", [[], ["--catch_post_mortem"]])
def test_without_terminal_the_process_fails(tmp_path, flags):
    run = subprocess.run(
        [sys.executable, _script(tmp_path), *flags],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 1
    assert "ValueError: failed" in run.stderr
    assert "(Pdb)" not in run.stdout


def _talk_on_terminal(command, answer):
    """Run with a pseudo terminal, give one answer, and return exit code and output."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    os.write(controller, answer)
    output = b""
    while True:
        try:
            chunk = os.read(controller, 4096)
        except OSError:  # the other side was closed
            break
        if not chunk:
            break
        output += chunk
    os.close(controller)
    return process.wait(), output.decode()


def test_debugger_opens_at_the_failing_frame_and_the_process_fails(tmp_path):
    code, output = _talk_on_terminal(
        [sys.executable, _script(tmp_path), "--catch_post_mortem"], b"p answer\nq\n"
    )
    assert code == 1
    assert "(Pdb)" in output
    assert "42" in output
    assert "ValueError: failed" in output


def test_system_exit_passes_untouched(tmp_path):
    code, output = _talk_on_terminal(
        [sys.executable, _script(tmp_path, "SystemExit(3)"), "--catch_post_mortem"], b""
    )
    assert code == 3
    assert "(Pdb)" not in output


def test_result_and_name_pass_through():
    @error_utils.catch_post_mortem
    def main(x):
        """Doc."""
        return x + 1

    assert main(1) == 2
    assert main.__name__ == "main"
