"""Namespaces whose members are imported when they are first used."""

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

from kauldron.lazy_namespace import lazy_imports


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with lazy members, not imported yet."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        textwrap.dedent(
            """
            from kauldron.lazy_namespace import lazy_imports

            with lazy_imports(__name__):
                from lazy_package import count as count
                from lazy_package.shapes import Circle as Round
                from xml import dom as dom

            def own(): ...
            """
        )
    )
    (folder / "count.py").write_text("number = 3")
    (folder / "shapes.py").write_text("class Circle: ...")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_package")
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


def test_members_are_imported_when_they_are_used(package):
    assert "lazy_package.shapes" not in sys.modules
    assert package.Round is importlib.import_module("lazy_package.shapes").Circle
    assert package.count.number == 3
    assert package.dom.__name__ == "xml.dom"
    assert "Round" in vars(package)  # found directly from now on


def test_members_are_listed_and_misspelled_ones_explained(package):
    assert {"count", "Round", "dom", "own"} <= set(dir(package))
    assert "lazy_imports" not in dir(package)
    with pytest.raises(AttributeError, match="Did you mean 'Round'"):
        package.Roud


def test_imports_of_other_modules_are_left_alone(package):
    with lazy_imports(package.__name__):
        from fractions import Fraction
    assert Fraction(1, 2) * 2 == 1


@pytest.mark.parametrize("name", ["Metrc", "no_such_thing"])
def test_a_program_suggests_the_nearest_name_once(package, tmp_path, name):
    (tmp_path / "lazy_package" / "at_once.py").write_text(
        "from kauldron.lazy_namespace import suggest_names\n"
        "Metric = int\n"
        "suggest_names(__name__)\n"
    )
    script = f"import lazy_package.at_once as package; package.{name}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    [*_, last] = done.stderr.splitlines()
    hint = " Did you mean 'Metric'?" if name == "Metrc" else ""
    module = "lazy_package.at_once"
    assert last == f"AttributeError: module {module!r} has no attribute {name!r}.{hint}"
