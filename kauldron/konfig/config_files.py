"""Loads config files: `file.py`, `file.py:arguments`, `pkg.module`, `config.json`."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kauldron.konfig.configdict import ConfigDict
from kauldron.konfig.configdict_proxy import ConfigDictProxyObject
from kauldron.konfig.error_prefix import error_prefix
from kauldron.konfig.file_names import short_file
from kauldron.konfig.qualnames import did_you_mean
from kauldron.konfig.set_events import recording

ENTRY_POINTS = ("get_config", "config")


def split_argument(text: str) -> tuple[str, str]:
    """Splits `file.py:text` or `pkg.module:text` into the file and the text.

    >>> split_argument("C:/configs/a.py:n=3")
    ('C:/configs/a.py', 'n=3')
    >>> split_argument("configs/a.py")
    ('configs/a.py', '')
    """
    if ".py:" in text:
        file, _, argument = text.partition(".py:")
        return f"{file}.py", argument
    if text.endswith((".py", ".json")) or os.path.exists(text):
        return text, ""
    file, _, argument = text.partition(":")
    return file, argument


def is_saved_config(file: str) -> bool:
    """Whether this names a saved config: a JSON file, or a folder that holds one."""
    return file.endswith(".json") or os.path.isdir(file)


def load_saved_config(file: str) -> ConfigDict:
    """The config of a `config.json`, or of a folder with such a file.

    Raises:
      OSError: The file cannot be read.
      ValueError: It is not the JSON form of a config.
    """
    path = os.path.join(file, "config.json") if os.path.isdir(file) else file
    if not os.path.isfile(path):
        raise FileNotFoundError(_missing_file_message(path))
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    with error_prefix(f"{path}: "):
        if not isinstance(json.loads(text), dict):
            raise ValueError("a saved config is a JSON object.")
        with recording("json", path):
            return ConfigDict.from_json(text)


def load_module(file: str, module_name: str) -> ModuleType:
    """The module of a config file, freshly executed, or of a dotted name.

    Args:
      file: A path that ends in `.py`, relative to the working directory, or a dotted
        module name.
      module_name: Under which the module of a path is put into `sys.modules`, so that
        classes defined in it can be found by `resolve`.

    Raises:
      OSError: There is no such file.
      ModuleNotFoundError: There is no such module.
    """
    if file.endswith(".py"):
        return _load_file(file, module_name)
    if os.sep in file or not all(name.isidentifier() for name in file.split(".")):
        hint = f" Did you mean {file}.py?" if os.path.exists(f"{file}.py") else ""
        raise FileNotFoundError(
            f"There is no config {file!r}.{hint} Expected a .py file, a config.json, a "
            "folder with one, or the dotted name of a module."
        )
    if os.path.exists(f"{file}.py"):
        raise FileNotFoundError(f"There is no config {file!r}. Did you mean {file}.py?")
    with error_prefix(f"Loading the config module {file!r} failed: "):
        return importlib.import_module(file)


def _load_file(file: str, module_name: str) -> ModuleType:
    if not os.path.isfile(file):
        raise FileNotFoundError(_missing_file_message(file))
    path = os.path.abspath(file)
    loader = importlib.machinery.SourceFileLoader(module_name, path)
    spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        with error_prefix(f"Loading the config file {file} failed: "):
            # Not loader.exec_module: an edit within a second must not meet old bytecode.
            code = loader.source_to_code(loader.get_data(path), path)
            exec(code, vars(module))
    except BaseException:
        if before is None:
            del sys.modules[module_name]
        else:
            sys.modules[module_name] = before
        raise
    return module


def folders_around(file: str) -> list[str]:
    """Where a config finds modules: beside it, beside its folder, where we are."""
    folder = os.path.dirname(os.path.abspath(file))
    beside = [folder, os.path.dirname(folder)] if file.endswith(".py") else []
    return [*beside, os.getcwd()]


def make_importable(*folders: str) -> None:
    """Lets a config import what lies in some folders, as a script what is beside it.

    It stays so: what the config names is imported when it is resolved. The folders come
    last, so that they hide no installed module.
    """
    _importable.update(folders)
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


def importable_folders() -> list[str]:
    """The folders that were made importable, for whoever resolves the config later."""
    return [folder for folder in sys.path if folder in _importable]


_importable: set[str] = set()


def recorded_folders(run_info: Any) -> list[str]:
    """The folders that a run found its modules in, as far as they are still there.

    Args:
      run_info: The path of its `run_info.json`, on whatever file system.
    """
    try:
        folders = json.loads(run_info.read_text())["import_folders"]
        return [folder for folder in folders if os.path.isdir(folder)]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or of another age
        return []


def _missing_file_message(file: str) -> str:
    folder = os.path.dirname(file) or "."
    message = f"There is no config file {file!r}"
    if not os.path.isdir(folder):
        return f"{message}: there is no folder {folder!r} (in {os.getcwd()})."
    ending = os.path.splitext(file)[1]
    names = [name for name in os.listdir(folder) if name.endswith(ending)]
    suggestion = did_you_mean(os.path.basename(file), names)
    return f"{message} (in {os.getcwd()}).{suggestion}"


def entry_point(module: ModuleType) -> Callable[..., Any]:
    """The function of a config module that builds the config.

    Raises:
      AttributeError: The module has no `get_config` and no `config` function.
    """
    for name in ENTRY_POINTS:
        function = vars(module).get(name)
        if callable(function) and not isinstance(function, ConfigDictProxyObject):
            return function
    names = [name for name, value in vars(module).items() if callable(value)]
    raise AttributeError(
        f"{file_of(module)} defines no function get_config()."
        f"{did_you_mean('get_config', names)} A config file ends with\n"
        "    def get_config():\n        ...\n        return cfg"
    )


def file_of(module: ModuleType) -> str:
    """How messages call a config module: its file."""
    file = getattr(module, "__file__", None)
    return short_file(file) if file else module.__name__
