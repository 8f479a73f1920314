"""A config that is still to be built by its module, and the overrides waiting for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from kauldron import path_grammar
from kauldron.konfig import config_args, config_files
from kauldron.konfig.configdict import ConfigDict
from kauldron.konfig.error_prefix import error_prefix
from kauldron.konfig.overriding import ARGS_KEY, Override, apply_in_order
from kauldron.konfig.pathing import Path
from kauldron.konfig.set_events import Kind


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
        """Notes an override. Its path is looked up when the config is built."""
        parts = path_grammar.parse(path) if isinstance(path, str) else tuple(path)
        text = path_grammar.format_path(parts)
        flag = f"{text}={value!r:.80}"
        self.overrides.append(Override(path=text, value=value, flag=flag))
        return [text]

    __setitem__ = set_by_path

    def update(self, overrides: Mapping[str, Any]) -> None:
        """Notes all overrides of a flat mapping."""
        for path, value in overrides.items():
            self.set_by_path(path, value)

    def get_module_config(self) -> ConfigDict:
        """Builds the config and applies the overrides, anew at each call.

        Raises:
          AttributeError: The module has no `get_config`.
          ValueError: It returns no config, or the arguments of `ConfigArgs` are wrong.
        """
        return build_config(self.module, self.cli_str_arg, self.overrides, kind="sweep")


def get_config_from_module(module: ModuleType, cli_str_arg: str = "") -> ConfigDict:
    """The config of an imported config module, without overrides.

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
    """Calls the entry point of a config module and applies overrides to the result."""
    overrides = list(overrides)
    for_args = [o for o in overrides if o.parts[0] == ARGS_KEY]
    for_fields = [o for o in overrides if o.parts[0] != ARGS_KEY]
    cfg = _call_entry_point(module, argument, for_args)
    apply_in_order(cfg, for_fields, kind=kind)
    return cfg


def _call_entry_point(
    module: ModuleType, argument: str, overrides: list[Override]
) -> ConfigDict:
    function = config_files.entry_point(module)
    file = config_files.file_of(module)
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
        f"{name}() of {file} returned a {type(cfg).__name__}, not a config. Was the "
        "import of its module wrapped in konfig.imports()?"
    )
