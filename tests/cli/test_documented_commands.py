"""The commands that the page on the command line shows print what it says."""

import pathlib
import re
import shlex

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "running" / "command_line.md"


def block_pattern(language):
    return re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples():
    """The commands that come with output, and their output."""
    for block in block_pattern("console").findall(PAGE.read_text()):
        command, _, output = block.partition("\n")
        if output and not output.startswith(("$", ">")):  # more commands, or one loop
            yield command.removeprefix("$ kauldron "), output


def test_page_has_examples():
    assert len(list(examples())) >= 4


@pytest.mark.parametrize(
    "command, output", list(examples()), ids=lambda text: text[:20]
)
def test_command_prints_what_the_page_says(kauldron, folder, command, output):
    config = block_pattern("python").search(PAGE.read_text()).group(1)
    (folder / "config.py").write_text(config)
    _, out, err = kauldron(*shlex.split(command))
    assert out.replace(f"{folder}/", "") == output
    assert err == ""
