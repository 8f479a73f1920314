"""Completion, asked directly and in a real bash."""

import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from kauldron import cli
from kauldron.cli.commands.completion import complete

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "digits_classifier.py"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kauldron tr", ["train"]),
        ("kauldron config ", ["check", "diff", "paths", "resolve", "show"]),
        ("kauldron config d", ["diff"]),
        ("kauldron runs --js", ["--json"]),
        ("kauldron test somewhere --st", ["--step="]),
        ("kauldron train --cf", ["--cfg.", "--cfg="]),
        ("kauldron train --cfg=exam", []),  # files are the shell's
        ("kauldron train 'open", []),
        ("kauldron nonsense ", []),
        (f"kauldron train --cfg={CONFIG} --cfg.optim", ["--cfg.optimizer."]),
        (
            f"kauldron train --cfg={CONFIG} --cfg.optimizer.learning_rate.",
            [
                "--cfg.optimizer.learning_rate.decay_steps=",
                "--cfg.optimizer.learning_rate.init_value=",
            ],
        ),
        (f"kauldron sweep --cfg={CONFIG} --sweep.see", ["--sweep.seed="]),
        (f"kauldron config diff --other={CONFIG} --other.see", ["--other.seed="]),
        (
            "kauldron train --cfg=no_such_file.py --cfg.num_t",
            ["--cfg.num_train_steps="],
        ),
        (f"kauldron train --cfg={CONFIG} --cfg.seed=", []),
        (f"kauldron --cfg={CONFIG} --cfg.on_nonf", ["--cfg.on_nonfinite="]),
    ],
)
def test_what_a_line_can_become(line, expected):
    assert complete(line) == expected


def test_fields_of_a_saved_config(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 1, "special": {"width": 3}}')
    line = f"kauldron test {tmp_path} --cfg.special."
    assert complete(line) == ["--cfg.special.width="]
    line = f"kauldron eval --workdir={tmp_path} --cfg.spe"
    assert complete(line) == ["--cfg.special."]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(capsys, shell):
    assert cli.main(["completion", shell]) == 0
    assert "kauldron completion --line" in capsys.readouterr().out


def test_without_a_shell_it_asks_which(capsys):
    assert cli.main(["completion"]) == 2
    assert "Which shell? One of: bash, zsh, fish." in capsys.readouterr().err


class Bash:
    """An interactive bash in a terminal, with `kauldron` on its path."""

    def __init__(self, folder):
        program = folder / "kauldron"
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m kauldron.main "$@"\n'
        )
        program.chmod(0o755)
        self.terminal, inner = pty.openpty()
        changes = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PS1": "ready> ",
            "TERM": "dumb",
        }
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, **changes},
            start_new_session=True,
        )
        os.close(inner)
        self.seen = ""

    def type(self, text):
        self.seen = ""
        os.write(self.terminal, text.encode())

    def wait_for(self, text):
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < deadline, f"No {text!r} in {self.seen!r}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.seen += os.read(self.terminal, 1 << 16).decode(errors="replace")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def bash(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("There is no bash.")
    shell = Bash(tmp_path)
    shell.wait_for("ready> ")
    shell.type('eval "$(kauldron completion bash)"; echo do""ne\n')
    shell.wait_for("done")
    yield shell
    shell.close()


@pytest.mark.slow
def test_tab_in_a_real_bash(bash):
    bash.type("kauldron config pat\t")
    bash.wait_for("paths ")  # with a space: the word is finished
    bash.type(f"--cfg={CONFIG} --cfg.optimizer.learning_rate.init\t")
    bash.wait_for("--cfg.optimizer.learning_rate.init_value=")
    bash.type("1\x15kauldron config paths --cfg=" + str(CONFIG)[:-4] + "\t")
    bash.wait_for(CONFIG.name)  # files are completed after `--cfg=`
