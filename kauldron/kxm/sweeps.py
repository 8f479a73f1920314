"""Sweeps: which values the work units of an experiment differ in.

A sweep is an iterable of `SweepItem`, one for each work unit. It comes from a list
(`SimpleSweep`), from functions in the config file (`SweepFromCfg`, `KauldronSweep`), from
a search space (`kxm.Search`) or from the command line (`sweep_from_flags`).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from kauldron import konfig
from kauldron.errors import did_you_mean
from kauldron.konfig.overrides.values import parse_literal
from kauldron.kxm.config_provider import ConfigProvider
from kauldron.kxm.kauldron_jobs import JobsProvider, KauldronJobs

# What `--xp.sweep` may be.
Names = bool | str | Sequence[str] | None


@dataclasses.dataclass(frozen=True)
class SweepItem:
    """What one work unit changes.

    Attributes:
      job_kwargs: From the name of a flag of the program to its value.
      xm_ui_kwargs: What is shown for it, and used in folder names.
      origin: Where it comes from, for messages.
    """

    job_kwargs: Mapping[str, Any]
    _: dataclasses.KW_ONLY
    xm_ui_kwargs: Mapping[str, Any] | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        if self.xm_ui_kwargs is None:
            shown = {key: display_value(v) for key, v in self.job_kwargs.items()}
            object.__setattr__(self, "xm_ui_kwargs", shown)


def display_value(value: Any) -> Any:
    """Return what is shown of a value: scalars as they are, others as text.

    Example:
      >>> display_value(konfig.ConfigDict({"__qualname__": "flax.linen:Dense", "0": 3}))
      'nn.Dense(3)'
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = repr(value)
    if isinstance(value, konfig.ConfigDict):
        text = text.removeprefix("<ConfigDict[").removesuffix("]>")
    return re.sub(r"\s+", " ", text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """Base of the sweeps: a repeatable iterable of `SweepItem`."""

    def __iter__(self) -> Iterator[SweepItem]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__.")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def tags(self) -> list[str]:
        """Tags that the experiment gets."""
        return ["sweep"]

    @property
    def adaptive(self) -> Any:
        """The `kxm.Search` that chooses values when a work unit starts, if there is one."""
        return None

    def replace_with_jobs_provider(self, provider: JobsProvider) -> Self:
        """Return a sweep that knows where the jobs come from."""
        del provider
        return self

    def with_names(self, sweep: Names) -> SweepInfo:
        """Return the sweep for a value of `xp.sweep`."""
        return NoSweep() if sweep is False else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoSweep(SweepInfo):
    """One work unit that changes nothing."""

    def __iter__(self) -> Iterator[SweepItem]:
        return iter([SweepItem({})])

    @property
    def tags(self) -> list[str]:
        return []

    def with_names(self, sweep: Names) -> SweepInfo:
        if sweep in (None, False):
            return self
        raise ValueError(
            f"sweep={sweep!r}: the experiment has no sweep to choose from. Set "
            "`sweep_info=`, such as kxm.SweepFromCfg()."
        )


@dataclasses.dataclass(frozen=True, init=False)
class SimpleSweep(SweepInfo):
    """A list of work units.

    Attributes:
      items: One dict for each, from the name of a flag of the program to its value.

    Example:
      >>> len(SimpleSweep([{"seed": 0}, {"seed": 1}]))
      2
    """

    items: tuple[SweepItem, ...]

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        dicts = items() if callable(items) else items
        made = tuple(_items(dicts, "SimpleSweep"))
        if not made:
            raise ValueError("SimpleSweep has no items.")
        object.__setattr__(self, "items", made)

    def __iter__(self) -> Iterator[SweepItem]:
        return iter(self.items)


def _items(dicts: Any, origin: str, prefix: str = "") -> Iterator[SweepItem]:
    """Yield checked items, with `prefix` in front of the names."""
    if isinstance(dicts, Mapping | str) or not isinstance(dicts, Iterable):
        raise TypeError(
            f"{origin} gives a {type(dicts).__name__}, not a list of dicts."
        )
    for index, item in enumerate(dicts):
        where = f"{origin}, item {index}"
        if isinstance(item, SweepItem):
            yield item
            continue
        if not isinstance(item, Mapping) or isinstance(item, konfig.ConfigDict):
            raise TypeError(f"{where}: expected a dict, got {item!r:.80}.")
        for key in item:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a text.")
        names = {key: key.removeprefix(prefix) for key in item}
        kwargs = {f"{prefix}{names[key]}": value for key, value in item.items()}
        shown = {names[key]: display_value(value) for key, value in item.items()}
        yield SweepItem(kwargs, xm_ui_kwargs=shown, origin=where)


#
# Functions in config files
#


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
        found = [part.adaptive for part in self.parts if part.adaptive is not None]
        return found[0] if found else None

    @property
    def parts(self) -> list[SweepInfo]:
        """The sweep of each function that was chosen."""
        names = sweep_names(self.sweep, self.module)
        return [self._part(name) for name in names]

    def _part(self, name: str) -> SweepInfo:
        from kauldron.kxm.search import Search, as_search

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
            items = tuple(_items(result, label, self._prefix))
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
      ValueError: There is no such function, or it is none of the things it may be.
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


def product(parts: Sequence[SweepInfo]) -> list[SweepItem]:
    """Return the product of sweeps, the last one varying fastest.

    Raises:
      ValueError: Two of them give different values to one key.
    """
    if any(part.adaptive is not None for part in parts):
        if len(parts) > 1:
            raise ValueError("An adaptive search cannot be combined with other sweeps.")
        return list(parts[0])
    return [_combined(items) for items in itertools.product(*parts)]


def _combined(items: Sequence[SweepItem]) -> SweepItem:
    if len(items) == 1:
        return items[0]
    kwargs: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for item in items:
        for key, value in item.job_kwargs.items():
            if key in kwargs and kwargs[key] != value:
                places = " and ".join(i.origin for i in items if key in i.job_kwargs)
                raise ValueError(f"{key!r} is set to different values by {places}.")
        kwargs.update(item.job_kwargs)
        shown.update(item.xm_ui_kwargs or {})
    origin = " x ".join(item.origin for item in items)
    return SweepItem(kwargs, xm_ui_kwargs=shown, origin=origin)


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
    return [
        provider.for_sweep(
            {k.removeprefix("cfg."): v for k, v in item.job_kwargs.items()}
        ).config
        for item in info
    ]


#
# The command line: --sweep.seed=0:4
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlagSweep(SweepInfo):
    """The product of lists of values that were given on the command line.

    Attributes:
      values: From the path in the config to its values.
      prefix: What flags of the program begin with.
    """

    values: Mapping[str, tuple[Any, ...]]
    prefix: str = "cfg."

    def __iter__(self) -> Iterator[SweepItem]:
        for combination in itertools.product(*self.values.values()):
            item = dict(zip(self.values, combination))
            yield from _items([item], "--sweep", self.prefix)


def sweep_from_flags(flags: Sequence[str], *, prefix: str = "cfg.") -> FlagSweep:
    """Return the sweep that `--sweep.path=values` flags describe.

    Args:
      flags: Such as `--sweep.seed=0:4`, in order; the last varies fastest.
      prefix: What the flags of the program begin with.

    Raises:
      ValueError: A flag cannot be read, or a path is given twice.

    Example:
      >>> [item.xm_ui_kwargs for item in sweep_from_flags(["--sweep.seed=0:2"])]
      [{'seed': 0}, {'seed': 1}]
    """
    values: dict[str, tuple[Any, ...]] = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        path = name.lstrip("-").removeprefix("sweep.").removeprefix(prefix)
        if not equals or not path:
            raise ValueError(
                f"{flag}: write --sweep.path=values, such as 1,2,3 or 0:4."
            )
        if path in values:
            raise ValueError(f"{flag}: --sweep.{path} is given twice.")
        values[path] = tuple(parse_values(text, flag))
    return FlagSweep(values=values, prefix=prefix)


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::(?:(log|lin)=?(\d+)|({_NUMBER})))?")


def parse_values(text: str, flag: str = "") -> list[Any]:
    """Return the values that the text of a sweep flag lists.

    `a,b,c` is a list, `0:4` the integers 0 to 3, `0:10:2` every second one, `0:1:0.25`
    numbers up to but without the end, `0:1:lin5` five numbers with both ends, and
    `1e-4:1e-1:log4` four numbers with equal ratios. They may be mixed: `0:3,10`.

    Args:
      text: What stands behind the `=`.
      flag: For messages.

    Raises:
      ValueError: It lists nothing, or a range is empty.

    Example:
      >>> parse_values("1e-3,3e-3"), parse_values("0:10:5"), parse_values("a,[1,2]")
      ([0.001, 0.003], [0, 5], ['a', [1, 2]])
      >>> parse_values("1e-4:1e-1:log4")
      [0.0001, 0.001, 0.01, 0.1]
    """
    parts = _split(text)
    if not text.strip() or any(not part.strip() for part in parts):
        raise ValueError(f"{flag or text!r}: a value is missing.")
    values: list[Any] = []
    for part in parts:
        match = _RANGE.fullmatch(part.strip())
        values += (
            _range(match, flag or part) if match else [parse_literal(part.strip())]
        )
    return values


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _range(match: re.Match[str], flag: str) -> list[Any]:
    low, high = (ast.literal_eval(match[i].lstrip("+")) for i in (1, 2))
    kind, count, step = match[3], match[4], match[5]
    if kind is not None:
        return _spaced(kind, low, high, int(count), flag)
    size = ast.literal_eval(step.lstrip("+")) if step else 1
    if size == 0:
        raise ValueError(f"{flag}: the step of a range must not be 0.")
    if all(isinstance(number, int) for number in (low, high, size)):
        values: list[Any] = list(range(low, high, size))
    else:
        if step is None:
            raise ValueError(
                f"{flag}: a range of fractions needs a step or a count: "
                f"{match[1]}:{match[2]}:0.1, {match[1]}:{match[2]}:lin5 or "
                f"{match[1]}:{match[2]}:log5."
            )
        number = max(0, math.ceil((high - low) / size - 1e-9))
        values = [_rounded(low + index * size) for index in range(number)]
    if not values:
        raise ValueError(f"{flag}: the range is empty.")
    return values


def _spaced(kind: str, low: float, high: float, count: int, flag: str) -> list[Any]:
    if count < 2:
        raise ValueError(f"{flag}: {kind}{count}: at least 2 values have both ends.")
    if kind == "lin":
        return [_rounded(low + (high - low) * i / (count - 1)) for i in range(count)]
    if low <= 0 or high <= 0:
        raise ValueError(f"{flag}: a logarithmic range needs positive ends.")
    ends = math.log(low), math.log(high)
    inner = range(1, count - 1)
    middle = [
        _rounded(math.exp(ends[0] + (ends[1] - ends[0]) * i / (count - 1)))
        for i in inner
    ]
    return [float(low), *middle, float(high)]


def _rounded(value: float) -> float:
    """Return a number without the noise of binary fractions: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")
