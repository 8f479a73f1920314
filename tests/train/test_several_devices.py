"""Runs `on_eight_devices.py` where JAX sees eight devices."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.slow
def test_trainers_on_eight_devices():
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "addopts=--import-mode=importlib"),
            str(HERE / "on_eight_devices.py"),
        ],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed.group(1)) >= 17
