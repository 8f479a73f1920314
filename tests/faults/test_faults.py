"""Whatever happens to a run, it continues as if nothing had happened, or says why not."""

import os
import subprocess
import sys

import pytest

from tests import compilation
from tests.faults import experiments, faults, rounds

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    programs = os.environ["JAX_COMPILATION_CACHE_DIR"]  # of all tests
    quickly = compilation.quick_environment()  # all runs that are compared
    return rounds.Lab(tmp_path_factory.mktemp("faults"), programs, quickly)


def _parameters():
    for fault in faults.FIXED:
        marks = []
        if fault.needs_disk:
            marks.append(
                pytest.mark.skipif(not rounds.can_mount(), reason="needs a small disk")
            )
        yield pytest.param(fault, id=str(fault), marks=marks)


@pytest.mark.parametrize("fault", list(_parameters()))
def test_run_survives(fault, lab):
    rounds.run(fault, lab)


@pytest.mark.skipif(not rounds.can_mount(), reason="needs a small disk")
def test_command_on_a_full_disk_ends_with_a_few_lines(tmp_path, fast_python):
    file, workdir = tmp_path / "config.py", tmp_path / "run"
    file.write_text(
        "from tests.faults import experiments\n"
        f"def get_config(): return experiments.make_config({str(workdir)!r})\n"
    )
    with rounds.small_disk(workdir):
        experiments.fill_disk(workdir)
        done = subprocess.run(
            [sys.executable, "-m", "kauldron", "train", f"--cfg={file}"],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert "error: [Errno 28]" in done.stderr and str(workdir) in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 10
