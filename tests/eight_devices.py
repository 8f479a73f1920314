"""Running a file of tests where JAX sees eight devices: in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys


def passed_on_eight_devices(file: pathlib.Path) -> int:
    """How many tests of a file pass; none may fail."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "addopts=--import-mode=importlib"),
            str(file),
        ],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    return int(passed[1]) if passed else 0
