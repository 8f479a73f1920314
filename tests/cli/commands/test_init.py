"""`kauldron init`: the project that it writes works."""

import os
import pathlib
import subprocess
import sys

import pytest

from kauldron import cli
from tests.compilation import quick_environment

pytestmark = pytest.mark.usefixtures("fast_python")

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def kauldron(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = cli.main(list(map(str, arguments)))
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def _python(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment |= quick_environment()
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_the_tests_of_a_new_project_pass_and_its_commands_work(kauldron, tmp_path):
    code, out, _ = kauldron("init", "fancy")
    assert code == 0
    project = tmp_path / "fancy"
    done = _python("-m", "pytest", "-q", cwd=project)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    commands = [
        line.strip().removeprefix("kauldron ").split()
        for line in out.splitlines()
        if line.startswith("  kauldron ")
    ]
    assert [command[0] for command in commands] == ["check", "train", "test"]
    commands[1] += ["--cfg.num_train_steps=10", "--cfg.profiler=None"]
    program = (
        "import sys; from kauldron.main import main; sys.path.remove('')\n"
        f"for command in {commands!r}:\n"
        "    print('begin', command[0])\n"
        "    code = main(command)\n"
        "    assert code == 0, (command, code)\n"
    )
    done = _python("-c", program, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "metrics/confidence" in done.stdout.partition("begin test")[2]


def test_the_next_steps_are_printed(kauldron, tmp_path):
    code, out, _ = kauldron("init", tmp_path / "deep" / "fancy")
    assert code == 0
    assert "Next:" in out and "python -m pytest" in out
    listed = {line.strip() for line in out.splitlines()}
    assert {
        "README.md",
        ".gitignore",
        "fancy/model.py",
        "configs/baseline.py",
    } <= listed
    for path in (tmp_path / "deep" / "fancy").rglob("*"):
        assert path.is_dir() or "PROJECT_NAME" not in path.read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-project", "such as 'my_project'"),
        ("3d", "such as 'my_3d'"),
        ("class", "such as 'my_class'"),
        ("jax", "is the name of an installed package"),
        ("json", "is the name of an installed package"),
        ("tests", "is also the name of a folder of the project"),
    ],
)
def test_names_that_cannot_be_imported(kauldron, tmp_path, name, message):
    code, _, err = kauldron("init", name)
    assert code == 2 and message in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_left_alone(kauldron, tmp_path):
    (tmp_path / "fancy").mkdir()
    assert kauldron("init", "fancy")[0] == 0  # empty
    before = sorted(tmp_path.rglob("*"))
    code, _, err = kauldron("init", "fancy")
    assert code == 2 and "fancy is not empty: it holds .gitignore, README.md" in err
    assert sorted(tmp_path.rglob("*")) == before
