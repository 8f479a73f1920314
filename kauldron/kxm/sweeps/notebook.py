"""The configs of a sweep in a notebook, where nothing is launched."""

from __future__ import annotations

import enum
import types

from kauldron import konfig
from kauldron.kxm.config_provider import ConfigProvider
from kauldron.kxm.sweeps.functions import KauldronSweep


class SweepMode(enum.StrEnum):
    """Which configs of a sweep to make.

    Attributes:
      NONE: Only the config itself.
      FIRST: The first work unit.
      ALL: All work units.
    """

    NONE = enum.auto()
    FIRST = enum.auto()
    ALL = enum.auto()


def iter_sweep_configs(
    *,
    module: types.ModuleType,
    sweep_mode: SweepMode | str,
    sweep_name: str = "",
    config_args: str = "",
) -> list[konfig.ConfigDict]:
    """Make the configs of a sweep, and print what each changes.

    Args:
      module: The module of the config.
      sweep_mode: Which ones to make.
      sweep_name: Which function: `"lr"` for `sweep_lr()`; empty for `sweep()`.
      config_args: Arguments of `get_config`, as after the colon of `--cfg=file.py:...`.

    Returns:
      The configs.
    """
    mode = SweepMode(sweep_mode)
    provider = ConfigProvider.from_module(module, config_parameter=config_args or None)
    if mode is SweepMode.NONE:
        print("The config, without a sweep")
        return [provider.config]
    configs = []
    sweep = KauldronSweep(sweep=sweep_name or True, cfg_provider=provider)
    for changes, cfg in sweep.configs():
        shown = ", ".join(f"{name}={value!r}" for name, value in changes.items())
        print(f"{len(configs) + 1}: {shown}")
        configs.append(cfg)
        if mode is SweepMode.FIRST:
            break
    return configs
