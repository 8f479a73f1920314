"""Every example in the README and the docs runs, and prints what the page says."""

import doctest
import pathlib
import re
import textwrap
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def _python_blocks(page: pathlib.Path) -> list[tuple[int, str]]:
    """The page's ```python blocks as (line number, source)."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start()) + 2, textwrap.dedent(match.group(2)))
        for match in _BLOCK.finditer(text)
    ]


def _run_block(source: str, namespace: dict, page: pathlib.Path, line: int) -> None:
    if not source.lstrip().startswith(">>>"):
        padding = "\n" * (line - 1)  # tracebacks name the line of the page
        exec(compile(padding + source, str(page), "exec"), namespace)
        return
    example = doctest.DocTestParser().get_doctest(
        source, namespace, page.name, str(page), line - 1
    )
    report: list[str] = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    runner.run(example, out=report.append, clear_globs=False)
    namespace.update(example.globs)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAULDRON_HOME", str(tmp_path / "home"))
    namespace = {"__name__": "__main__"}
    for line, source in _python_blocks(page):
        _run_block(source, namespace, page, line)


def test_pages_with_examples_are_found():
    assert any(_python_blocks(page) for page in PAGES)


def test_readme_names_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"`(\w+)`", (ROOT / "README.md").read_text()))
    assert set(project["optional-dependencies"]) - {"dev", "docs"} <= named
