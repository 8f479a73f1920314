"""The commands on the pages about launching run, and print what the pages say."""

import doctest
import pathlib
import re
import shlex

import pytest

from kauldron.cli.main import main

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "running"
FILE = re.compile(
    r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```", re.M | re.S
)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.M | re.S)


def commands(page):
    """Yield the commands of a page and the output that it shows."""
    for block in CONSOLE.findall((DOCS / page).read_text()):
        for part in re.split(r"^\$ kauldron ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def with_output(page):
    return [command for command, output in commands(page) if output]


@pytest.mark.parametrize("page", ["launching.md", "sweeps.md"])
def test_commands_print_what_the_page_says(page, tmp_path, capfd):
    for name, source in FILE.findall((DOCS / page).read_text()):
        (tmp_path / name).write_text(source)
    is_same = doctest.OutputChecker().check_output
    for command, output in commands(page):
        if "#" in command:  # the overview
            continue
        main(shlex.split(command))
        out, err = capfd.readouterr()
        shown = err if output.startswith("error") else out
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert not output or is_same(output, shown, flags), f"{command}\n{shown}"
        assert output.startswith("error") or not err, err


def test_the_pages_show_output():
    assert len(with_output("launching.md")) >= 3
    assert len(with_output("sweeps.md")) == 2
