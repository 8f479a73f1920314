"""Running a file of tests where JAX sees eight devices: in a process of its own."""

import pathlib
import re

from tests import processes


def passed_on_eight_devices(file: pathlib.Path) -> int:
    """How many tests of a file pass; none may fail."""
    exit_code, output = processes.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("-o", "addopts=--import-mode=importlib", file),
        environment={"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
    ).wait()
    assert exit_code == 0, output
    passed = re.search(r"(\d+) passed", output)
    return int(passed[1]) if passed else 0
