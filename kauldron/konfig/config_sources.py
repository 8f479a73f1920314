"""Where a config comes from: a file, its arguments and the overrides given with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from kauldron.konfig import config_files
from kauldron.konfig.configdict import ConfigDict
from kauldron.konfig.module_configdict import build_config
from kauldron.konfig.overriding import (
    ARGS_KEY,
    Override,
    apply_in_order,
    last_of_each,
    match_override,
)


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
        """Loads the file, calls its `get_config` and applies the overrides.

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
        file, argument = config_files.split_argument(self.file)
        config_files.make_importable(*config_files.folders_around(file))
        if not config_files.is_saved_config(file):
            module = config_files.load_module(file, f"{self.name}_config")
            return build_config(module, argument, self.overrides)
        cfg = config_files.load_saved_config(file)
        for override in self.overrides:
            if override.parts[0] == ARGS_KEY:
                raise ValueError(f"{override.flag}: a saved config takes no arguments.")
        apply_in_order(cfg, self.overrides, may_import=not import_nothing)
        return cfg

    def override_values(self) -> dict[str, Any]:
        """From path to value, in the order of the last appearance of each path."""
        return {o.path: o.parsed for o in last_of_each(self.overrides)}

    def as_flags(self) -> list[str]:
        """Command line arguments that give the same config again."""
        overrides = [o.as_flag(self.name) for o in last_of_each(self.overrides)]
        return [f"--{self.name}={self.file}", *overrides] if self.file else overrides


def take_overrides(
    arguments: Sequence[str],
    name: str,
    takes_value: Callable[[str], bool] = lambda flag: False,
    stops_at_first_word: bool = False,
) -> tuple[list[Override], list[str]]:
    """Separates the overrides of one config from all other arguments.

    Args:
      arguments: A command line without the program.
      name: The name of the config flag.
      takes_value: Whether a flag, given without dashes, is followed by its value.
      stops_at_first_word: Whether flags end at the first argument that is none.

    Returns:
      The overrides, and the other arguments. Nothing behind `--` is an override.

    Raises:
      ValueError: The path of an override cannot be read.
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
            others += [value for value in [next(remaining, None)] if value is not None]
    return overrides, others
