"""A board over written runs, in a process of its own, and a real browser."""

import contextlib
import pathlib
import re
import subprocess

import pytest

from tests import processes

CHROMIUM = pathlib.Path("/usr/bin/chromium")

# The page asks for news every two seconds; a test need not wait for that.
HURRY = """
const wait = window.setTimeout;
window.setTimeout = (call, after) => wait(call, Math.min(after, 150));
"""


@contextlib.contextmanager
def board(folder):
    """Serve a folder with `kauldron board`; gives the address."""
    pytest.importorskip("starlette", reason="the extra `board` is not installed")
    pytest.importorskip("uvicorn", reason="the extra `board` is not installed")
    python = processes.fast_python()
    command = [python, "-m", "kauldron", "board", str(folder), "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            yield re.search(r"http://[\d.]+:\d+", line).group()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window."""
    if not CHROMIUM.exists():
        pytest.skip("there is no /usr/bin/chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as tool:
        opened = tool.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"]
        )
        context = opened.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(30_000)
        yield context
        opened.close()


@pytest.fixture(scope="module")
def tab(browser):
    """The tab of all tests of a module: a new one is a new process."""
    return browser.new_page()


@pytest.fixture
def page(tab):
    """An empty tab; what goes wrong in its scripts fails the test."""
    with _failing_with_its_scripts(tab):
        yield tab


@pytest.fixture
def hurried_page(browser):
    """A tab of its own that asks for news all the time."""
    tab = browser.new_page()
    tab.add_init_script(HURRY)
    with _failing_with_its_scripts(tab):
        yield tab
    tab.close()


@contextlib.contextmanager
def _failing_with_its_scripts(tab):
    errors = []

    def note(error):
        errors.append(str(error))

    tab.on("pageerror", note)
    yield
    tab.goto("about:blank")
    tab.remove_listener("pageerror", note)
    assert errors == []
