"""How many files a reader passes to follow what happens."""

import pathlib
import re

import pytest

from tests import compilation, processes

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "walk.py"


@pytest.mark.parametrize("flow", ["config", "batch", "dispatch"])
def test_walks_are_no_longer_than_their_goals(flow):
    quickly = compilation.quick_environment()
    exit_code, output = processes.python(TOOL, flow, environment=quickly).wait()
    assert exit_code == 0, output
    numbers = re.search(rf"\| {flow} \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", output)
    assert numbers, output
    files, most_files, changes, most_changes = map(int, numbers.groups())
    assert files <= most_files and changes <= most_changes
