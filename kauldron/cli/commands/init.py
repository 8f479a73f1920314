"""`kauldron init`."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import pathlib
import re
import sys

import kauldron
from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.terminal import UsageError

_TEMPLATE = pathlib.Path(kauldron.__file__).parent / "cli" / "project_template"
_SUFFIX = ".tmpl"  # so that no tool takes the template for code of kauldron
_PLACEHOLDER = "PROJECT_NAME"
_RENAMED = {"package": _PLACEHOLDER, "gitignore": ".gitignore"}


class Init(Implementation):
    """Write a new project, which trains and whose tests pass."""

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "name",
            metavar="NAME",
            help="its folder, of which the last part names the package to import",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        folder = pathlib.Path(args.name)
        name = pathlib.Path(args.name).absolute().name
        _check_name(name)
        _check_free(folder)
        try:
            files = write_project(folder, name)
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error}") from error
        print(f"Wrote {len(files)} files to {folder}:")
        for path in files:
            print(f"  {path}")
        print(
            "\nNext:\n"
            f"  cd {folder}\n"
            "  python -m pytest\n"
            "  kauldron check --cfg=configs/baseline.py\n"
            "  kauldron train --cfg=configs/baseline.py --cfg.workdir=runs/1\n"
            "  kauldron test runs/1 --step=best\n"
            f"Then replace the model, the data and the metric in {name}/ with your own."
        )
        return OK


def write_project(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Fill in the template; return the files, relative to the folder."""
    written = []
    for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
        relative = source.relative_to(_TEMPLATE).with_suffix("")
        parts = [_RENAMED.get(part, part) for part in relative.parts]
        path = pathlib.Path(*(part.replace(_PLACEHOLDER, name) for part in parts))
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
        target.write_text(text, encoding="utf-8")
        written.append(path)
    return sorted(written)


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        better = re.sub(r"\W+", "_", name).strip("_").lower() or "project"
        if not better.isidentifier() or keyword.iskeyword(better):
            better = f"my_{better}"
        raise UsageError(
            f"{name!r} cannot be imported as a Python package: use letters, digits and "
            f"`_`, such as {better!r}."
        )
    if name in ("configs", "tests", "notebooks"):
        raise UsageError(
            f"{name!r} is also the name of a folder of the project: use "
            f"another name, such as 'my_{name}'."
        )
    is_known = name in sys.stdlib_module_names or _is_installed(name)
    if is_known:
        raise UsageError(
            f"{name!r} is the name of an installed package, which the project would "
            f"hide: use another name, such as 'my_{name}'."
        )


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    # A folder without `__init__.py`, such as the one to write to, is not a package.
    return spec is not None and spec.origin is not None


def _check_free(folder: pathlib.Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file.")
    if folder.is_dir() and any(folder.iterdir()):
        names = sorted(path.name for path in folder.iterdir())
        raise UsageError(
            f"{folder} is not empty: it holds {', '.join(names[:5])}. Name a new folder."
        )
