"""Sweep functions of config files: `sweep()` and `sweep_<name>()`."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from kauldron import konfig
from kauldron.errors import did_you_mean
from kauldron.kxm.config_provider import ConfigProvider
from kauldron.kxm.kauldron_jobs import JobsProvider, KauldronJobs
from kauldron.kxm.sweeps.items import (
    Names,
    NoSweep,
    SimpleSweep,
    SweepInfo,
    SweepItem,
    checked_items,
    product,
)
from kauldron.kxm.sweeps.search import Search, as_search


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFromCfg(SweepInfo):
    """The sweep functions of the config file: `sweep()` and `sweep_<name>()`.

    Each yields dicts, from the name of a flag to its value, or returns a `kxm.Search`.

    Attributes:
      sweep: Which functions, from `xp.sweep`.
      cfg_provider: The config, filled in by the experiment.
    """

    sweep: Names = None
    cfg_provider: ConfigProvider | None = None

    _prefix = ""

    def with_names(self, sweep: Names) -> SweepInfo:
        if sweep is None or sweep is False:
            return NoSweep()
        return dataclasses.replace(self, sweep=sweep)

    def replace_with_jobs_provider(self, provider: JobsProvider) -> Self:
        return dataclasses.replace(self, cfg_provider=provider.cfg_provider)

    @property
    def module(self) -> types.ModuleType:
        """The config file."""
        if self.cfg_provider is None or self.cfg_provider.module is None:
            raise ValueError(
                "sweep module not set. Did you set `--cfg=path/to/config.py` ?"
            )
        return self.cfg_provider.module

    @property
    def tags(self) -> list[str]:
        names = sweep_names(self.sweep, self.module)
        return [f"sweep:{name}" if name else "sweep" for name in names]

    @property
    def adaptive(self) -> Any:
        return next((p.adaptive for p in self.parts if p.adaptive is not None), None)

    @property
    def parts(self) -> list[SweepInfo]:
        """The sweep of each function that was chosen."""
        return [self._part(name) for name in sweep_names(self.sweep, self.module)]

    def _part(self, name: str) -> SweepInfo:
        function = sweep_functions(self.module)[name]
        label = f"{function_name(name)}()"
        with konfig.set_lazy_imported_modules(("*",)):
            needs_config = bool(inspect.signature(function).parameters)
            assert self.cfg_provider is not None
            arguments = [self.cfg_provider.config] if needs_config else []
            result = function(*arguments)
            search = as_search(result)
            if isinstance(search, Search):
                return search.with_prefix(self._prefix)
            items = tuple(checked_items(result, label, self._prefix))
        if not items:
            raise ValueError(f"{label} yields no work units.")
        return SimpleSweep(items)

    def __iter__(self) -> Iterator[SweepItem]:
        return iter(product(self.parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class KauldronSweep(SweepFromCfg):
    """The sweep functions of the config of a trainer; keys are paths in the config."""

    _prefix = "cfg."

    def replace_with_jobs_provider(self, provider: JobsProvider) -> Self:
        if not isinstance(provider, KauldronJobs):
            raise TypeError(
                "KauldronSweep needs jobs_provider=kxm.KauldronJobs(), got "
                f"{type(provider).__name__}. For other programs use kxm.SweepFromCfg()."
            )
        return super().replace_with_jobs_provider(provider)

    def configs(self) -> Iterator[tuple[dict[str, Any], konfig.ConfigDict]]:
        """Yield what each work unit changes, and its config."""
        assert self.cfg_provider is not None
        for item in self:
            changes = {
                name.removeprefix(self._prefix): value
                for name, value in item.job_kwargs.items()
            }
            yield changes, self.cfg_provider.for_sweep(changes).config


def function_name(name: str) -> str:
    """Return the name of the function of a sweep."""
    return f"sweep_{name}" if name else "sweep"


def sweep_functions(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the sweep functions of a config file by their names, as they are defined."""
    found = {}
    for key, value in vars(module).items():
        is_named = key == "sweep" or key.startswith("sweep_")
        if is_named and callable(value):
            found[key.removeprefix("sweep").removeprefix("_")] = value
    return found


def sweep_names(sweep: Names, module: types.ModuleType) -> list[str]:
    """Return the names of the functions that `xp.sweep` chooses.

    Raises:
      ValueError: There is no such function, or `sweep` is not a valid choice.
    """
    functions = sweep_functions(module)
    if sweep is True:
        names = [""]
    elif sweep == "*":
        names = list(functions)
    elif isinstance(sweep, str):
        names = [name.strip() for name in sweep.split(",")]
    elif isinstance(sweep, list | tuple) and all(isinstance(n, str) for n in sweep):
        names = list(sweep)
    else:
        raise ValueError(
            f"sweep={sweep!r}: expected True, names separated by commas, or a list."
        )
    file = getattr(module, "__file__", module.__name__)
    for name in names:
        if name not in functions:
            known = ", ".join(map(function_name, functions)) or "none"
            hint = did_you_mean(name, functions) if name else ""
            raise ValueError(
                f"{file} has no sweep function {function_name(name)}().{hint} "
                f"Available: {known}."
            )
    if not names:
        raise ValueError(f"{file} has no sweep functions.")
    return names


def sweep_configs(
    module_or_path: types.ModuleType | str,
    sweep: Names = True,
    overrides: Mapping[str, Any] | None = None,
) -> list[konfig.ConfigDict]:
    """Return the config of each work unit of a sweep. Nothing is launched.

    Args:
      module_or_path: A config module, or the path of a config file.
      sweep: Which sweep functions, as in `xp.sweep`.
      overrides: From path to value, as `--cfg.path=value` gives them.
    """
    if isinstance(module_or_path, types.ModuleType):
        provider = ConfigProvider.from_module(module_or_path, overrides=overrides)
    else:
        provider = ConfigProvider.from_path(module_or_path, overrides=overrides)
    info = KauldronSweep(sweep=sweep, cfg_provider=provider)
    return [cfg for _, cfg in info.configs()]
