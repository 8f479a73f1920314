"""Config files: `file.py`, `file.py:arguments`, `pkg.module`, `config.json`.

How they are found and loaded, how their `get_config` is called, and how the overrides
given with them are applied to the result.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from kauldron.errors import a_type, did_you_mean, error_prefix
from kauldron.konfig.authoring.proxies import ConfigDictProxyObject
from kauldron.konfig.overrides import config_args
from kauldron.konfig.overrides.overrides import (
    ARGS_KEY,
    Override,
    apply_in_order,
    last_of_each,
    match_override,
)
from kauldron.konfig.tree.configdict import ConfigDict
from kauldron.konfig.tree.history import Kind, recording, short_file
from kauldron.konfig.tree.paths import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """What was given on the command line to get one config.

    Attributes:
      name: The name of the flag, `cfg` for `--cfg=file.py --cfg.a=1`.
      file: The text given as `--cfg=`, such as `file.py:arguments`, or None.
      overrides: In the order given.
    """

    name: str = "cfg"
    file: str | None = None
    overrides: tuple[Override, ...] = ()

    def build(self, *, import_nothing: bool = False) -> ConfigDict:
        """Load the file, call its `get_config` and apply the overrides.

        The working directory becomes importable, as `python -m` makes it; for a file
        also its folder and the one around that, so that `configs/` may lie beside the
        code.

        Args:
          import_nothing: Do not import what a saved config names, even if an override
            names one of its positional arguments.

        Raises:
          OSError: There is no such file.
          KeyError, TypeError, ValueError, FlagOrderError: An override is wrong; the
            message starts with the flag.
          Exception: Whatever the config file raises, with its name in the message.
        """
        if self.file is None:
            raise ValueError(f"No config was given: --{self.name}=path/to/config.py")
        file, argument = split_argument(self.file)
        make_importable(*folders_around(file))
        if not is_saved_config(file):
            module = load_module(file, f"{self.name}_config")
            return build_config(module, argument, self.overrides)
        cfg = load_saved_config(file)
        for override in self.overrides:
            if override.parts[0] == ARGS_KEY:
                raise ValueError(f"{override.flag}: a saved config takes no arguments.")
        apply_in_order(cfg, self.overrides, may_import=not import_nothing)
        return cfg

    def override_values(self) -> dict[str, Any]:
        """Return the values by path, in the order of their last appearance."""
        return {o.path: o.parsed for o in last_of_each(self.overrides)}

    def as_flags(self) -> list[str]:
        """Return command line arguments that give the same config again."""
        overrides = [o.as_flag(self.name) for o in last_of_each(self.overrides)]
        return [f"--{self.name}={self.file}", *overrides] if self.file else overrides


def take_overrides(
    arguments: Sequence[str],
    name: str,
    takes_value: Callable[[str], bool] = lambda flag: False,
    stops_at_first_word: bool = False,
) -> tuple[list[Override], list[str]]:
    """Separate the overrides of one config from all other arguments.

    Nothing behind `--` is an override. `takes_value` says whether a flag, given without
    dashes, is followed by its value.
    """
    overrides: list[Override] = []
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        is_word = not argument.startswith("-")
        if argument == "--" or (is_word and stops_at_first_word):
            others += [argument, *remaining]
            break
        override = match_override(argument, name)
        if override is not None:
            overrides.append(override)
            continue
        others.append(argument)
        if not is_word and "=" not in argument and takes_value(argument.lstrip("-")):
            others += itertools.islice(remaining, 1)
    return overrides, others


class ModuleConfigDict:
    """Collects overrides, then calls `get_config` and applies them.

    Overrides of `__args__.name` reach the `ConfigArgs` of the module, so they must be
    known before the config exists.

    Args:
      module: A config module, which defines `get_config`.
      cli_str_arg: The text that stood behind `file.py:`.

    Example:
      >>> import types
      >>> from kauldron import konfig
      >>> module = types.ModuleType("my_config")
      >>> module.get_config = lambda: konfig.ConfigDict({"seed": 0})
      >>> pending = ModuleConfigDict(module=module)
      >>> pending["seed"] = 3
      >>> pending.get_module_config().seed
      3
    """

    def __init__(self, *, module: ModuleType, cli_str_arg: str = "") -> None:
        self.module = module
        self.cli_str_arg = cli_str_arg
        self.overrides: list[Override] = []

    def set_by_path(self, path: Path, value: Any) -> list[str]:
        """Note an override. Its path is looked up when the config is built."""
        override = Override.of(path, value)
        self.overrides.append(override)
        return [override.path]

    __setitem__ = set_by_path

    def update(self, overrides: Mapping[str, Any]) -> None:
        """Note all overrides of a flat mapping."""
        for path, value in overrides.items():
            self.set_by_path(path, value)

    def get_module_config(self) -> ConfigDict:
        """Build a new config and apply the overrides to it.

        Raises:
          AttributeError: The module has no `get_config`.
          ValueError: It returns no config, or the arguments of `ConfigArgs` are wrong.
        """
        return build_config(self.module, self.cli_str_arg, self.overrides, kind="sweep")


def get_config_from_module(module: ModuleType, cli_str_arg: str = "") -> ConfigDict:
    """Return the config of an imported config module, without overrides.

    Args:
      module: Defines `get_config`.
      cli_str_arg: The text that would stand behind `file.py:` on the command line.

    Raises:
      AttributeError: The module has no `get_config`.
      ValueError: It returns no config, or the text cannot be used.
    """
    return build_config(module, cli_str_arg, ())


def build_config(
    module: ModuleType,
    argument: str,
    overrides: Iterable[Override],
    *,
    kind: Kind = "cli",
) -> ConfigDict:
    """Call the entry point of a config module and apply overrides to the result."""
    overrides = list(overrides)
    for_args = [o for o in overrides if o.parts[0] == ARGS_KEY]
    for_fields = [o for o in overrides if o.parts[0] != ARGS_KEY]
    cfg = _call_entry_point(module, argument, for_args)
    apply_in_order(cfg, for_fields, kind=kind)
    return cfg


def _call_entry_point(
    module: ModuleType, argument: str, overrides: list[Override]
) -> ConfigDict:
    function = entry_point(module)
    file = file_of(module)
    cls = config_args.config_args_class(module)
    if cls is not None:
        arguments = [config_args.build_config_args(cls, argument, overrides)]
    elif overrides:
        raise ValueError(
            f"{overrides[0].flag}: {file} defines no dataclass ConfigArgs, so there "
            "are no arguments to set."
        )
    else:
        arguments = [argument] if argument else []
    _check_arguments(function, file, arguments)
    given = f"({', '.join(map(repr, arguments))})"
    with error_prefix(f"{function.__name__}{given} of {file} failed: "):
        cfg = function(*arguments)
    return _checked_config(cfg, function.__name__, file)


def _check_arguments(function: Any, file: str, arguments: list[Any]) -> None:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        name = function.__name__
        if not arguments:
            hint = f"it needs a text: write {file}:text"
        else:
            hint = f"it must take one argument, here {arguments[0]!r}"
        raise TypeError(f"{name} of {file}: {error}; {hint}.") from None
    except ValueError:  # a callable without a signature
        pass


def _checked_config(cfg: Any, name: str, file: str) -> ConfigDict:
    if cfg is None:
        raise ValueError(f"{name}() of {file} returned None. Forgot to return cfg?")
    if isinstance(cfg, ConfigDict):
        return cfg
    if isinstance(cfg, Mapping):
        return ConfigDict(cfg)
    raise ValueError(
        f"{name}() of {file} returned {a_type(cfg)}, not a config. Was the "
        "import of its module wrapped in konfig.imports()?"
    )


ENTRY_POINTS = ("get_config", "config")


def split_argument(text: str) -> tuple[str, str]:
    """Split `file.py:text` or `pkg.module:text` into the file and the text.

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
    """Return whether this is a JSON file, or a folder that may hold a config."""
    return file.endswith(".json") or os.path.isdir(file)


def load_saved_config(file: str) -> ConfigDict:
    """Return the config of a `config.json`, or of a folder with such a file."""
    path = os.path.join(file, "config.json") if os.path.isdir(file) else file
    if not os.path.isfile(path):
        raise FileNotFoundError(_missing_file_message(path))
    with error_prefix(f"{path}: "), recording("json", path):
        return ConfigDict.from_json(pathlib.Path(path))


def load_module(file: str, module_name: str) -> ModuleType:
    """Return the module of a config file, freshly executed, or of a dotted name.

    That of a file is put into `sys.modules` as `module_name`, so that `resolve` finds
    classes defined in it.
    """
    if file.endswith(".py"):
        return _load_file(file, module_name)
    is_dotted_name = os.sep not in file and all(map(str.isidentifier, file.split(".")))
    lacks_ending = os.path.exists(f"{file}.py")
    if lacks_ending or not is_dotted_name:
        hint = f" Did you mean {file}.py?" if lacks_ending else ""
        raise FileNotFoundError(
            f"There is no config {file!r}.{hint} Expected a .py file, a config.json, a "
            "folder with one, or the dotted name of a module."
        )
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
    """Return where a config finds modules: beside it, above it, where we are."""
    folder = os.path.dirname(os.path.abspath(file))
    beside = [folder, os.path.dirname(folder)] if file.endswith(".py") else []
    return [*beside, os.getcwd()]


def make_importable(*folders: str) -> None:
    """Let a config import modules from some folders, as a script does from its own.

    This lasts: what the config names is imported when it is resolved. The folders come
    last, so that they hide no installed module.
    """
    _importable.update(folders)
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


def importable_folders() -> list[str]:
    """Return the folders that were made importable."""
    return [folder for folder in sys.path if folder in _importable]


_importable: set[str] = set()


def recorded_folders(run_info: Any) -> list[str]:
    """Return the folders of a `run_info.json` that the modules of the run were in.

    Only those that still exist.
    """
    try:
        folders = json.loads(run_info.read_text())["import_folders"]
        return [folder for folder in folders if os.path.isdir(folder)]
    except (OSError, ValueError, KeyError, TypeError):  # missing or of another version
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
    """Return the function of a config module that builds the config."""
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
    """Return the file of a config module, for messages."""
    file = getattr(module, "__file__", None)
    return short_file(file) if file else module.__name__
