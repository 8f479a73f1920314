"""Nothing piles up while a run goes on."""

import pytest

from tests import compilation
from tests.faults import soak

FLAT = [
    {"step": step, "memory_mb": 300.0, "open_files": 15, "processes": 3}
    for step in range(0, 1001, 50)
]


@pytest.mark.slow
def test_long_run_grows_neither_in_memory_nor_in_open_files(tmp_path):
    quickly = compilation.quick_environment()
    noted = soak.run(tmp_path, 300, num_workers=0, looks=10, environment=quickly)
    assert [use["step"] for use in noted] == list(range(0, 301, 30))
    assert soak.growth(noted, soak.TOLERANCE / 2) == []  # it is not that long


@pytest.mark.parametrize(
    ("name", "more"), [("memory_mb", 0.02), ("open_files", 0.01), ("processes", 0.002)]
)
def test_growth_is_told(name, more):
    noted = [{**use, name: use[name] + more * use["step"]} for use in FLAT]
    assert soak.growth(FLAT) == []
    (line,) = soak.growth(noted)
    assert line.startswith(name)
