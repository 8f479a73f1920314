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

ROOT = pathlib.Path(__file__).parents[3]
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
        ("kauldron train --cfg=", []),
        ("kauldron test somewhere --step=", []),
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


SETUPS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; "),
}


class Shell:
    """An interactive shell in a terminal, with `kauldron` on its path."""

    def __init__(self, command, path):
        self.terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "PATH": path, "TERM": "dumb"},
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


@pytest.fixture(scope="module")
def path_with_kauldron(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    program = folder / "kauldron"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m kauldron.main "$@"\n'
    )
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(params=list(SETUPS))
def shell(request, path_with_kauldron):
    if shutil.which(request.param) is None:
        pytest.skip(f"There is no {request.param}.")
    command, setup = SETUPS[request.param]
    shell = Shell(command, path_with_kauldron)
    script = f'eval "$(kauldron completion {request.param})"'
    shell.type(f'PS1="ready> "; {setup}{script}; echo do""ne\n')
    shell.wait_for("done\r\n")
    shell.wait_for("ready> ")
    yield shell
    shell.close()


@pytest.mark.slow
def test_tab_in_a_real_shell(shell):
    shell.type("kauldron config pat\t")
    shell.wait_for("paths ")  # with a space: the word is finished
    shell.type(f"--cfg={CONFIG} --cfg.optimizer.learning_rate.init\t")
    shell.wait_for("_value=")
    shell.type("1\x15kauldron config paths --cfg=" + str(CONFIG)[:-4] + "\t")
    shell.wait_for(f"{CONFIG.name} ")  # files are completed after `--cfg=`


OFFERED_BY_FISH = {
    "kauldron config pat": "paths",
    f"kauldron train --cfg={CONFIG} --cfg.optimizer.learning_rate.init": (
        "--cfg.optimizer.learning_rate.init_value="
    ),
    f"kauldron train --cfg={str(CONFIG)[:-4]}": f"--cfg={CONFIG}",
}


@pytest.fixture(scope="module")
def fish(path_with_kauldron):
    """What one fish offers for each line, and what went wrong."""
    asked = [f"; echo line; complete -C '{line}'" for line in OFFERED_BY_FISH]
    script = "kauldron completion fish | source" + "".join(asked)
    environment = {**os.environ, "PATH": path_with_kauldron}
    done = subprocess.run(
        ["fish", "-c", script], env=environment, capture_output=True, text=True
    )
    before, *answers = done.stdout.split("line\n")
    assert before == "", done.stderr
    return dict(zip(OFFERED_BY_FISH, answers, strict=True)), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="There is no fish.")
@pytest.mark.parametrize("line", OFFERED_BY_FISH)
def test_what_a_real_fish_offers(fish, line):
    answers, errors = fish
    offered = [text.split("\t")[0] for text in answers[line].splitlines()]
    assert offered == [OFFERED_BY_FISH[line]], errors
